package machine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/claimwatch"
	"github.com/vmlet/vmlet/cluster/machine/action"
	"github.com/vmlet/vmlet/cluster/machine/hibernation"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
)

// uses is what a test's watch of claims says: known at once, and all of it after a look.
type uses struct {
	all, known []claimwatch.Use
	err        error
	looks      int
}

func (u *uses) Look(context.Context, string, string) ([]claimwatch.Use, error) {
	u.looks++
	return u.all, u.err
}

func (u *uses) Known(string, string) []claimwatch.Use { return u.known }

func pgUse(by string) []claimwatch.Use {
	return []claimwatch.Use{{Claim: "pg", ClaimUID: "pg-uid", Volume: "pv-1", By: by}}
}

// TestSpoiled: a guest whose disk somebody has used, or may have, does not go on: the VM stays
// hibernated, and its image is kept until its owner discards it.
func TestSpoiled(t *testing.T) {
	boot := kubevirtv1.StartBoot
	s := newSleeper("Always", before("Hibernate")).asleep("memory", true)
	s.Spoiled = diskChanged("data", "pod backup has used claim pg since the save")
	if events := eventReasons(decide(s.state)); !slices.Equal(events, []string{"ResumeFailed"}) {
		t.Errorf("events %q", events)
	}
	expect(t, "start", s.step(), "Hibernated")
	rs := s.vm.Status.ResumeStatus
	if rs.Phase != "Failed" || rs.Reason != contract.RestoreDiskChanged || rs.RetryTimestamp != nil || !strings.Contains(rs.Message, "disk data") || !strings.Contains(rs.Message, "pod backup") {
		t.Errorf("%+v", rs)
	}
	s.Spoiled = nil
	s.now = s.now.Add(time.Hour)
	expect(t, "an hour later", s.step(), "")
	if s.vm.Status.HibernationStatus.Image == nil || s.Claims["memory"] == nil {
		t.Error("the image is not kept")
	}
	s.vm.Spec.StartStrategy = &boot
	s.vm.Generation++
	expect(t, "boot", s.step(), "create prune Starting")
}

// TestNotKnownYet: what can't be found out now is asked again later and later.
func TestNotKnownYet(t *testing.T) {
	s := newSleeper("Always", before("Hibernate")).asleep("memory", true)
	s.Spoiled = &action.Failure{Reason: hibernation.ReasonRestoreFailed, Message: "the API server does not answer"}
	for n := int32(1); n <= 3; n++ {
		expect(t, "try", s.step(), "Hibernated")
		rs := s.vm.Status.ResumeStatus
		if rs.Failures != n || rs.RetryTimestamp == nil || !rs.RetryTimestamp.After(s.now) {
			t.Fatalf("try %d: %+v", n, rs)
		}
		s.now = rs.RetryTimestamp.Add(time.Second)
	}
	s.Spoiled = nil
	expect(t, "known", s.step(), "createRestore prune Resuming")
}

// TestSpoiledMeanwhile: a guest that is about to go on does not, if its disk is used before it does.
func TestSpoiledMeanwhile(t *testing.T) {
	s := newSleeper("Always", before("Hibernate")).asleep("memory", true)
	expect(t, "start", s.step(), "createRestore prune Resuming")
	s.Spoiled = diskChanged("data", "pod backup has used claim pg since the save")
	going := s.instance
	expect(t, "used", s.step(), "Stopping delete")
	at := metav1.NewTime(s.now)
	s.instance, s.Spoiled = going, nil
	s.instance.DeletionTimestamp = &at
	expect(t, "goes", s.step(), "")
	s.instance = nil
	s.step()
	expect(t, "is gone", s.step(), "")
	if rs := s.vm.Status.ResumeStatus; rs.Reason != contract.RestoreDiskChanged || rs.Failures != 1 {
		t.Errorf("%+v", rs)
	}

	r := &Observer{Uses: &uses{known: pgUse("backup")}}
	instance := run.NewInstance(s.vm, false)
	instance.Spec.RestoreFrom = imageOn("memory")
	instance.Spec.Domain.Devices.Disks, instance.Spec.Volumes = []kubevirtv1.Disk{{Name: "data"}}, []kubevirtv1.Volume{pgClaim()}
	for name, c := range map[string]struct {
		change func(*kubevirtv1.VirtualMachineInstance)
		want   bool
	}{
		"is about to go on":  {func(*kubevirtv1.VirtualMachineInstance) {}, true},
		"runs":               {func(i *kubevirtv1.VirtualMachineInstance) { i.Status.Phase = kubevirtv1.PhaseRunning }, false},
		"has failed":         {func(i *kubevirtv1.VirtualMachineInstance) { i.Status.Phase = kubevirtv1.PhaseFailed }, false},
		"goes":               {func(i *kubevirtv1.VirtualMachineInstance) { i.DeletionTimestamp = &at }, false},
		"boots":              {func(i *kubevirtv1.VirtualMachineInstance) { i.Spec.RestoreFrom = nil }, false},
		"has no such disk":   {func(i *kubevirtv1.VirtualMachineInstance) { i.Spec.Volumes = nil }, false},
		"has it as no disk":  {func(i *kubevirtv1.VirtualMachineInstance) { i.Spec.Domain.Devices.Disks = nil }, false},
		"is not there so":    {func(i *kubevirtv1.VirtualMachineInstance) { *i = kubevirtv1.VirtualMachineInstance{} }, false},
		"is scheduled":       {func(i *kubevirtv1.VirtualMachineInstance) { i.Status.Phase = kubevirtv1.PhaseScheduled }, true},
		"has an image alone": {func(i *kubevirtv1.VirtualMachineInstance) { i.Spec.Domain.Devices.Disks[0].Name = "root" }, false},
	} {
		i := instance.DeepCopy()
		c.change(i)
		if got := r.spoiledMeanwhile(i) != nil; got != c.want {
			t.Errorf("an instance that %s: %v, want %v", name, got, c.want)
		}
	}
	gap := pgUse("")
	gap[0].Gap = &claimwatch.Gap{From: s.now, Until: s.now.Add(time.Minute)}
	for name, c := range map[string]struct {
		uses   []claimwatch.Use
		node   string
		ending bool
	}{
		"another pod has used the disk of a guest without a node":  {uses: pgUse("backup"), ending: true},
		"another pod has used the disk of a guest that has a node": {uses: pgUse("backup"), node: "n1", ending: true},
		"nobody watched a guest without a node":                    {uses: gap, ending: true},
		"nobody watched a guest that may go on already":            {uses: gap, node: "n1"},
		"nobody has used the disk":                                 {uses: pgUse("")},
	} {
		i := instance.DeepCopy()
		i.Status.NodeName = c.node
		if got := (&Observer{Uses: &uses{known: c.uses}}).spoiledMeanwhile(i) != nil; got != c.ending {
			t.Errorf("%s: it is ended: %v, want %v", name, got, c.ending)
		}
	}
	if r.spoiledMeanwhile(nil) != nil {
		t.Error("no instance is spoiled")
	}
}

// onPG creates the VM with a disk on a claim with volumeMode Block, and has it hibernated.
func (w *world) onPG(u *uses) {
	w.t.Helper()
	w.uses = u
	block := corev1.PersistentVolumeBlock
	w.must(w.server.Create(w.t.Context(), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: web.Namespace, Name: "pg", UID: "pg-uid"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: &block, VolumeName: "pv-1"},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}))
	w.begin("Halted")
	w.strategy("Always", func(s *kubevirtv1.VirtualMachineSpec) {
		s.Template.Spec.Domain.Devices.Disks = []kubevirtv1.Disk{{Name: "data"}}
		s.Template.Spec.Volumes = []kubevirtv1.Volume{pgClaim()}
	})
	w.converge(w.is("Running", 1))
	w.strategy("Hibernate")
	w.converge(w.sleeps(1, 2))
}

// TestResumeOverBlockDisks: what is known of a claim with volumeMode Block decides whether a guest goes
// on over it, and it is asked for once.
func TestResumeOverBlockDisks(t *testing.T) {
	used := pgUse("backup")
	replaced := pgUse("")
	replaced[0].ClaimUID = "another"
	for name, c := range map[string]struct {
		uses *uses
		says string // a part of why not; empty: it goes on
	}{
		"unused":       {&uses{all: pgUse("")}, ""},
		"used":         {&uses{all: used}, "disk data has volumeMode Block, and does not show whether anybody has written to it: pod backup has used claim pg"},
		"not watched":  {&uses{}, "no record of it"},
		"another disk": {&uses{all: []claimwatch.Use{{Claim: "wal"}}}, "no record of it"},
		"replaced":     {&uses{all: replaced}, "another one than at the save"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fault{}, lag{})
			w.onPG(c.uses)
			w.strategy("Always")
			if c.says == "" {
				w.converge(w.is("Running", 2))
				return
			}
			w.converge(w.sleeps(1, 2))
			rs := w.vm().Status.ResumeStatus
			if rs == nil || rs.Reason != contract.RestoreDiskChanged || !strings.Contains(rs.Message, c.says) {
				t.Errorf("resumeStatus %+v, want %q", rs, c.says)
			}
			if c.uses.looks > 1 {
				t.Errorf("it was asked %d times", c.uses.looks)
			}
			w.strategy("Always", func(s *kubevirtv1.VirtualMachineSpec) { boot := kubevirtv1.StartBoot; s.StartStrategy = &boot })
			w.converge(w.is("Running", 2))
		})
	}
}

// TestResumeWhileNotKnown: an API server that does not say who has used a claim delays the resume.
func TestResumeWhileNotKnown(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	u := &uses{all: pgUse(""), err: errors.New("it does not answer")}
	w.onPG(u)
	w.strategy("Always")
	r := w.reconciler()
	for range 20 {
		w.reconcile(r)
	}
	if rs := w.vm().Status.ResumeStatus; rs == nil || rs.Reason != "RestoreFailed" || rs.RetryTimestamp == nil || !strings.Contains(rs.Message, "it does not answer") {
		t.Errorf("resumeStatus %+v", rs)
	}
	u.err = nil
	w.converge(w.is("Running", 2))
}

// TestUsedBeforeItGoesOn: the instance of a guest goes whose disk is used before it runs.
func TestUsedBeforeItGoesOn(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	u := &uses{all: pgUse("")}
	w.onPG(u)
	w.strategy("Always")
	r := w.reconciler()
	for w.instance() == nil {
		w.reconcile(r)
	}
	u.known = pgUse("backup")
	w.converge(w.sleeps(2, 2))
	if rs := w.vm().Status.ResumeStatus; rs == nil || rs.Reason != contract.RestoreDiskChanged || rs.Failures != 1 {
		t.Errorf("resumeStatus %+v", rs)
	}
}
