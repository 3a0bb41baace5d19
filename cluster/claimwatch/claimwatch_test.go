package claimwatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

func launcherPod(name, instance string) *corev1.Pod {
	return pod(name, "pg", map[string]string{contract.LabelApp: contract.LabelAppLauncher, contract.LabelCreatedBy: instance})
}

// TestVerdicts: what happens between a save and its resume decides whether the guest may go on.
func TestVerdicts(t *testing.T) {
	const unknown, used = "could not watch pods", "pod backup has used claim pg"
	comesAndGoes := func(s *server) { s.put(pod("backup", "pg", nil)); s.remove("backup") }
	ended := func(p *corev1.Pod) *corev1.Pod { p.Status.Phase = corev1.PodSucceeded; return p }
	unbound := func(p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = ""; return p }
	for name, c := range map[string]struct {
		before    func(*server)
		meanwhile func(*server, *controller) *controller
		want      string // a part; empty: the guest may go on
	}{
		"nothing happens": {nil, func(_ *server, c *controller) *controller { return c }, ""},
		"a pod comes and goes": {nil, func(s *server, c *controller) *controller {
			comesAndGoes(s)
			return c
		}, used},
		"a pod of another claim": {nil, func(s *server, c *controller) *controller {
			s.put(pod("backup", "other", nil))
			return c
		}, ""},
		"a pod in another namespace": {nil, func(s *server, c *controller) *controller {
			p := pod("backup", "pg", nil)
			p.Namespace = "bank"
			s.put(p)
			return c
		}, ""},
		"an ephemeral volume with a claim of that name": {nil, func(s *server, c *controller) *controller {
			p := pod("p", "", nil)
			p.Spec.Volumes = []corev1.Volume{{Name: "g", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
			s.put(p)
			return c
		}, ""},
		"a pod that no node has": {nil, func(s *server, c *controller) *controller {
			s.put(unbound(pod("backup", "pg", nil)))
			s.remove("backup")
			return c
		}, ""},
		"a pod that waited at the save": {func(s *server) { s.put(unbound(pod("backup", "pg", nil))) }, func(s *server, c *controller) *controller {
			s.put(pod("backup", "pg", nil))
			return c
		}, used},
		"a pod that had ended before": {func(s *server) { s.put(ended(pod("fill", "pg", nil))) }, func(s *server, c *controller) *controller {
			s.remove("fill")
			return c
		}, ""},
		"its own pod ends": {nil, func(s *server, c *controller) *controller {
			s.put(launcherPod("virt-launcher-web-1", "instance-1"))
			s.remove("virt-launcher-web-1")
			return c
		}, ""},
		"a pod that goes on from the image": {nil, func(s *server, c *controller) *controller {
			p := launcherPod("virt-launcher-web-2", "instance-2")
			p.Spec.Containers[0].Command = []string{"vmlet-shim", "pod", "--restore", contract.HibernationFolder + "/" + directory, "--once"}
			s.put(p)
			return c
		}, ""},
		"a pod that goes on from another image": {nil, func(s *server, c *controller) *controller {
			p := launcherPod("virt-launcher-web-2", "instance-2")
			p.Spec.Containers[0].Command = []string{"vmlet-shim", "pod", "--restore", contract.HibernationFolder + "/restore-web-20250701T080000Z"}
			s.put(p)
			return c
		}, "pod virt-launcher-web-2 has used"},
		"another VM": {nil, func(s *server, c *controller) *controller {
			s.put(launcherPod("virt-launcher-db-1", "instance-9"))
			return c
		}, "pod virt-launcher-db-1 has used"},
		"the claim is replaced": {nil, func(s *server, c *controller) *controller {
			s.set(func() { s.claims["pg"] = blockClaim("pg"); s.claims["pg"].UID = "claim-2" })
			return c
		}, "another one than at the save"},
		"the claim is gone": {nil, func(s *server, c *controller) *controller {
			s.set(func() { delete(s.claims, "pg") })
			return c
		}, "does not exist any more"},
		"the watch is interrupted": {nil, func(s *server, c *controller) *controller {
			s.interrupt()
			return c
		}, ""},
		"a pod comes and goes while the watch is interrupted": {nil, func(s *server, c *controller) *controller {
			s.set(func() { s.deaf = true })
			s.interrupt()
			comesAndGoes(s)
			time.Sleep(time.Minute)
			s.set(func() { s.deaf = false })
			return c
		}, used},
		"the API server forgets while the watch is interrupted": {nil, func(s *server, c *controller) *controller {
			s.set(func() { s.deaf = true })
			s.interrupt()
			s.forget()
			s.set(func() { s.deaf = false })
			return c
		}, unknown},
		"the controller is restarted": {nil, func(s *server, c *controller) *controller {
			c.stop()
			return s.starts(true)
		}, ""},
		"the controller is killed": {nil, func(s *server, c *controller) *controller {
			c.kill(s)
			return s.starts(true)
		}, ""},
		"a pod comes and goes while there is no controller": {nil, func(s *server, c *controller) *controller {
			c.stop()
			comesAndGoes(s)
			time.Sleep(time.Hour)
			return s.starts(true)
		}, used},
		"the controller is killed when it has seen a pod": {nil, func(s *server, c *controller) *controller {
			comesAndGoes(s)
			synctest.Wait()
			c.kill(s)
			s.forget()
			return s.starts(true)
		}, used},
		"the API server forgets while there is no controller": {nil, func(s *server, c *controller) *controller {
			c.stop()
			s.forget()
			return s.starts(true)
		}, unknown},
		"the record is deleted while there is no controller": {nil, func(s *server, c *controller) *controller {
			c.stop()
			s.set(func() { s.text = "" })
			return s.starts(true)
		}, "no record"},
		"the record is damaged": {nil, func(s *server, c *controller) *controller {
			c.stop()
			s.set(func() { s.text = `{"uses":[{}` })
			return s.starts(true)
		}, "no record"},
		"the record has no position": {nil, func(s *server, c *controller) *controller {
			c.stop()
			s.set(func() { s.text = strings.Replace(s.text, `"position"`, `"place"`, 1) })
			return s.starts(true)
		}, unknown},
		"after a day": {nil, func(s *server, c *controller) *controller {
			time.Sleep(24 * time.Hour)
			return c
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				if c.before != nil {
					c.before(s)
				}
				first := s.starts(true)
				if err := first.begin(); err != nil {
					t.Fatal(err)
				}
				last := c.meanwhile(s, first)
				got := last.verdict(s)
				if got != "" && c.want == "" || !strings.Contains(got, c.want) {
					t.Errorf("verdict %q, want %q", got, c.want)
				}
				last.stop()
			})
		})
	}
}

// TestBegin: a save begins only once its record is written and nobody else uses the claim, and what
// fails leaves nothing.
func TestBegin(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*server)
		want string
	}{
		"nobody else uses it": {func(*server) {}, ""},
		"another pod uses it": {func(s *server) { s.put(pod("backup", "pg", nil)) }, "pod backup, too"},
		"another pod comes meanwhile": {func(s *server) {
			s.onPods = func() { s.put(pod("backup", "pg", nil)); s.remove("backup"); synctest.Wait() }
		}, "has begun to use"},
		"there is no such claim":        {func(s *server) { delete(s.claims, "pg") }, "not found"},
		"the record can't be written":   {func(s *server) { s.refuse = errors.New("no quota") }, "no quota"},
		"the record may be written":     {func(s *server) { s.refuse, s.lost = errors.New("timed out"), true }, "timed out"},
		"the record has another writer": {func(s *server) { s.onPods = func() { s.set(func() { s.version++ }) } }, errOther.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t)
				w := s.starts(true)
				c.set(s)
				err := w.begin()
				if c.want == "" {
					if err != nil {
						t.Errorf("refused: %v", err)
					}
					if !strings.Contains(s.text, directory) {
						t.Errorf("the record is %s", s.text)
					}
					w.stop()
					return
				}
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
				if uses := w.Known(shop, directory); len(uses) > 0 {
					t.Errorf("left %+v", uses)
				}
				w.stop()
			})
		})
	}
}

// TestSavesAfterAGap: what was lost from sight stays so, and a later save is watched again.
func TestSavesAfterAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := s.starts(true)
		if err := c.begin(); err != nil {
			t.Fatal(err)
		}
		c.stop()
		s.forget()
		c = s.starts(true)
		synctest.Wait()
		const next = "restore-web-20260702T080000Z"
		if err := c.Begin(t.Context(), Use{Namespace: shop, VM: "web", Instance: "instance-1", Directory: next}, []string{"pg"}); err != nil {
			t.Fatal(err)
		}
		for directory, open := range map[string]bool{directory: false, next: true} {
			uses, err := c.Look(t.Context(), shop, directory)
			if err != nil || len(uses) != 1 || uses[0].open() != open {
				t.Errorf("%s: %+v, %v", directory, uses, err)
			}
		}
		c.stop()
		if len(c.told) != 1 || c.told[0] != "shop/web" {
			t.Errorf("told of %q", c.told)
		}
	})
}

// TestLookWaits: no verdict comes before the watch has come to the present.
func TestLookWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := s.starts(true)
		if err := c.begin(); err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.deaf = true })
		s.interrupt()
		if got := c.verdict(s); !strings.Contains(got, "has not come to the present") {
			t.Errorf("verdict %q", got)
		}
		s.set(func() { s.deaf = false })
		if got := c.verdict(s); got != "" {
			t.Errorf("verdict %q", got)
		}
		c.stop()
	})
}

// TestTwoControllers: one that is not the leader any more finds that out, and ends.
func TestTwoControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		old := s.starts(true)
		if err := old.begin(); err != nil {
			t.Fatal(err)
		}
		next := s.starts(true)
		s.put(pod("other", "", nil))
		time.Sleep(time.Hour)
		old.stop()
		next.stop()
		if errors.Is(old.err, errOther) == errors.Is(next.err, errOther) {
			t.Errorf("the old one ended with %v, the new one with %v", old.err, next.err)
		}
	})
}

// TestLostAnswer: a record that was written though its writer did not learn of it is its own.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := s.starts(true)
		s.set(func() { s.refuse, s.lost = errors.New("timed out"), true })
		if err := c.begin(); err == nil {
			t.Error("it is not known that the record is written")
		}
		s.set(func() { s.lost = false })
		if err := c.begin(); err != nil {
			t.Error(err)
		}
		c.stop()
	})
}

// TestTidy: what nobody needs is forgotten, after a while, and then pods are not watched any more.
func TestTidy(t *testing.T) {
	for _, needed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newServer(t)
			c := s.starts(needed)
			if err := c.begin(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tidyAge)
			if !c.watches() {
				t.Error("it is forgotten too soon")
			}
			time.Sleep(2 * keepInterval)
			synctest.Wait()
			if text, _, _ := s.Read(t.Context()); c.watches() != needed || strings.Contains(text, directory) != needed {
				t.Errorf("needed %v: watched %v, record %s", needed, c.watches(), text)
			}
			c.stop()
		})
	}
}

// TestQuietly: a controller without VMs of that kind watches nothing and writes nothing.
func TestQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := s.starts(true)
		s.put(pod("other", "pg", nil))
		time.Sleep(time.Hour)
		if uses, err := c.Look(t.Context(), shop, directory); len(uses) > 0 || err != nil {
			t.Errorf("%+v, %v", uses, err)
		}
		c.stop()
		if s.text != "" {
			t.Errorf("the record is %s", s.text)
		}
	})
}

// TestSpoiled has the rules of claims.
func TestSpoiled(t *testing.T) {
	file := corev1.PersistentVolumeFilesystem
	use := Use{Claim: "pg", ClaimUID: "claim-1", Volume: "pv-1"}
	at := time.Date(2026, 7, 1, 8, 0, 0, 0, time.UTC)
	claim := func(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
		c := blockClaim("pg")
		change(c)
		return c
	}
	used, lost := use, use
	used.By, lost.Gap = "backup", &Gap{From: at, Until: at.Add(time.Hour)}
	same := claim(func(*corev1.PersistentVolumeClaim) {})
	for name, c := range map[string]struct {
		claim *corev1.PersistentVolumeClaim
		use   *Use
		want  string
	}{
		"a file":                  {claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &file }), nil, ""},
		"a file's claim is gone":  {nil, nil, ""},
		"the same":                {same, &use, ""},
		"not watched":             {same, nil, "no record"},
		"gone":                    {nil, &use, "does not exist"},
		"another":                 {claim(func(c *corev1.PersistentVolumeClaim) { c.UID = "claim-2" }), &use, "another one"},
		"a file now":              {claim(func(c *corev1.PersistentVolumeClaim) { c.UID = "claim-2"; c.Spec.VolumeMode = &file }), &use, "another one"},
		"another volume":          {claim(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "pv-2" }), &use, "has volume pv-2, and had pv-1"},
		"its volume is lost":      {claim(func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost }), &use, "has lost its volume"},
		"used":                    {same, &used, "pod backup has used claim pg"},
		"not watched for a while": {same, &lost, "from 2026-07-01T08:00:00Z to 2026-07-01T09:00:00Z"},
	} {
		if got := Spoiled("pg", c.claim, c.use); got != "" && c.want == "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestEnded: a pod uses its claim until none of its containers can run, whoever wrote its phase.
func TestEnded(t *testing.T) {
	running := []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	lost := []corev1.ContainerStatus{{ContainerID: "containerd://0123", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "ContainerStatusUnknown"}}}}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   bool
	}{
		"running":                        {corev1.PodStatus{Phase: corev1.PodRunning}, false},
		"unknown":                        {corev1.PodStatus{Phase: corev1.PodUnknown}, false},
		"succeeded":                      {corev1.PodStatus{Phase: corev1.PodSucceeded}, true},
		"failed":                         {corev1.PodStatus{Phase: corev1.PodFailed}, true},
		"failed by others' word":         {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: running}, false},
		"failed, with a sidecar running": {corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: running}, false},
		"lost sight of by the kubelet":   {corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: lost}, false},
		"succeeded under a debugger":     {corev1.PodStatus{Phase: corev1.PodSucceeded, EphemeralContainerStatuses: running}, false},
	} {
		p := pod("backup", "pg", nil)
		p.Status = c.status
		if got := !(&Use{Namespace: p.Namespace, Claim: "pg"}).usedBy(p); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// FuzzDecode: whatever the record has, it is read or refused.
func FuzzDecode(f *testing.F) {
	f.Add(`{"writer":"a","position":"7","uses":[{"namespace":"shop","claim":"pg","by":"x"},null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := decode(text)
		if err != nil {
			return
		}
		r.see(pod("backup", "pg", nil))
		r.lose(time.Time{})
		if r.watches() {
			t.Error("a use is open after all were lost")
		}
	})
}

// TestTooMany: a record that would not fit is refused before it is written.
func TestTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		c := s.starts(true)
		s.set(func() { s.claims[strings.Repeat("c", maxRecord)] = blockClaim("pg") })
		err := c.Begin(context.Background(), Use{Namespace: shop, VM: "web", Directory: directory}, []string{strings.Repeat("c", maxRecord)})
		if err == nil || !strings.Contains(err.Error(), "no room for more") {
			t.Errorf("error %v", err)
		}
		if err := c.begin(); err != nil {
			t.Errorf("a smaller one: %v", err)
		}
		c.stop()
	})
}

// TestRoom: namespaces that have all the room that they get leave some to others, and what is in the
// record can be written whatever becomes known of it.
func TestRoom(t *testing.T) {
	var r record
	use := func(namespace string, i int) *Use {
		return &Use{
			Namespace: namespace, VM: "web", Instance: "00000000-0000-4000-8000-000000000001", Directory: directory,
			Claim: fmt.Sprint("claim-", i), ClaimUID: "00000000-0000-4000-8000-000000000002", Volume: "pvc-00000000-0000-4000-8000-000000000002", Since: time.Now(),
		}
	}
	const tenants = 10
	for n := range tenants {
		namespace := fmt.Sprint("hog-", n)
		for i := 0; r.room(namespace, []*Use{use(namespace, i)}) == nil; i++ {
			r.Uses = append(r.Uses, use(namespace, i))
		}
	}
	if err := r.room("shop", []*Use{use("shop", 1), use("shop", 2)}); err != nil {
		t.Errorf("another namespace: %v", err)
	}
	for i, u := range r.Uses {
		if u.By = strings.Repeat("p", 253); i%2 == 0 {
			u.By, u.Gap = "", &Gap{From: time.Now(), Until: time.Now()}
		}
	}
	r.Position = "1234567890"
	text, err := r.encode()
	if err != nil || len(text) > maxRecord || len(text) < maxRecord/2 {
		t.Errorf("a record of %d bytes: %v, want more than half of %d, and no more than that", len(text), err, maxRecord)
	}
}

// TestOwnPodIsKnownByItsOwner: another's pod that has the labels of the VM's is one that uses the claim.
func TestOwnPodIsKnownByItsOwner(t *testing.T) {
	u := &Use{Namespace: shop, Claim: "pg", VM: "web", Instance: "instance-1"}
	own := pod("virt-launcher-web-1", "pg", map[string]string{contract.LabelApp: contract.LabelAppLauncher, contract.LabelCreatedBy: "instance-1"})
	if u.usedBy(own) {
		t.Error("the VM's own pod is taken for another's")
	}
	own.OwnerReferences = nil
	if !u.usedBy(own) {
		t.Error("a pod with its labels is taken for the VM's own")
	}
}
