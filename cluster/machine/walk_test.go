package machine

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirtv1 "github.com/vmlet/vmlet/api/kubevirt/v1"
	"github.com/vmlet/vmlet/cluster/machine/run"
	"github.com/vmlet/vmlet/contract"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/suites"
)

// chapters of a VM's life. What comes of each is the same whatever fault befalls the
// controller: as many instances were ever made, and no more.
func chapters() map[string]func(*world) {
	return map[string]func(*world){
		"always": func(w *world) {
			w.begin("Always")
			w.converge(w.is("Running", 1))
			w.phase(kubevirtv1.PhaseSucceeded)
			w.converge(w.is("Running", 2))
			w.must(w.server.Delete(w.t.Context(), w.instance()))
			w.converge(w.is("Running", 3))
			w.remove(3)
		},
		"restart": func(w *world) {
			w.begin("Always")
			w.converge(w.is("Running", 1))
			w.strategy("Always", func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.Hostname = "other" })
			w.converge(w.is("Running", 1))
			if kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired") == nil {
				w.t.Fatal("a change of the template is not told")
			}
			w.request(stopRequest(w.instance().UID), startRequest())
			w.converge(w.is("Running", 2))
			if kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired") != nil {
				w.t.Fatal("RestartRequired outlives the restart")
			}
		},
		"rerun": func(w *world) {
			w.begin("RerunOnFailure")
			w.converge(w.is("Running", 1))
			w.phase(kubevirtv1.PhaseFailed)
			w.converge(w.is("Running", 2))
			w.phase(kubevirtv1.PhaseSucceeded)
			w.converge(w.is("Stopped", 2))
			w.request(startRequest())
			w.converge(w.is("Running", 3))
			w.request(stopRequest(w.instance().UID))
			w.converge(w.is("Stopped", 3))
		},
		"paused start": func(w *world) {
			w.begin("Halted")
			w.converge(w.is("Stopped", 0))
			w.request(startRequest("paused", "true"))
			w.converge(w.is("Running", 1))
			if s := w.instance().Spec.StartStrategy; s == nil || *s != kubevirtv1.StartPaused {
				w.t.Fatal("it was not started paused")
			}
			w.strategy("Halted")
			w.converge(w.is("Stopped", 1))
			w.remove(1)
		},
		"manual": func(w *world) {
			w.begin("Manual")
			w.converge(w.is("Stopped", 0))
			w.request(startRequest())
			w.converge(w.is("Running", 1))
			w.phase(kubevirtv1.PhaseSucceeded)
			w.converge(w.is("Stopped", 1))
			w.request(stopRequest(w.instance().UID), startRequest())
			w.converge(w.is("Running", 2))
			w.remove(2)
		},
		"hibernate": func(w *world) {
			w.begin("Always")
			w.converge(w.is("Running", 1))
			w.strategy("Hibernate")
			w.converge(w.sleeps(1, 1))
			w.strategy("Manual")
			w.converge(w.sleeps(1, 1))
			w.request(startRequest())
			w.converge(w.is("Running", 2))
			w.went(0)
			w.strategy("Hibernate")
			w.converge(w.sleeps(2, 1))
			w.strategy("Halted", func(s *kubevirtv1.VirtualMachineSpec) { boot := kubevirtv1.StartBoot; s.StartStrategy = &boot })
			w.converge(w.sleeps(2, 1))
			w.strategy("Always")
			w.converge(w.is("Running", 3))
			w.went(0)
			w.remove(3)
		},
		"hibernate to a claim of its own": func(w *world) {
			w.begin("Halted")
			w.strategy("Always", func(s *kubevirtv1.VirtualMachineSpec) { s.HibernateStrategy = &kubevirtv1.HibernateStrategy{} })
			w.converge(w.is("Running", 1))
			w.strategy("Hibernate")
			w.converge(w.sleeps(1, 1))
			w.strategy("RerunOnFailure", func(s *kubevirtv1.VirtualMachineSpec) { s.Template.Spec.Hostname = "other" })
			w.converge(w.is("Running", 2))
			if kubevirtv1.FindCondition(w.vm().Status.Conditions, "RestartRequired") == nil {
				w.t.Fatal("a change of the template while the guest was saved is not told")
			}
			w.went(1)
			w.strategy("Hibernate")
			w.converge(w.sleeps(2, 1))
			w.remove(2)
		},
		"a resume that fails": func(w *world) {
			w.begin("Always")
			w.converge(w.is("Running", 1))
			w.strategy("Hibernate")
			w.converge(w.sleeps(1, 1))
			w.broken = contract.RestoreDiskChanged
			w.strategy("Always")
			w.converge(w.sleeps(2, 1))
			if rs := w.vm().Status.ResumeStatus; rs == nil || rs.Phase != "Failed" || rs.Reason != w.broken || rs.Failures != 1 {
				w.t.Fatalf("resumeStatus is %+v", rs)
			}
			w.broken = ""
			w.strategy("Halted")
			w.converge(w.sleeps(2, 1))
			w.strategy("Always")
			w.converge(w.is("Running", 3))
			w.went(0)
		},
		"a hibernation that is cancelled": func(w *world) {
			w.begin("Always")
			w.converge(w.is("Running", 1))
			w.stuck = true
			w.strategy("Hibernate")
			w.converge(func() string {
				if h := w.vm().Status.HibernationStatus; h == nil || h.Phase != kubevirtv1.HibernationInProgress || h.Reason != "HibernationTimeout" {
					return fmt.Sprintf("hibernationStatus is %+v", h)
				}
				return ""
			})
			w.strategy("Always")
			w.converge(w.is("Running", 1))
			w.went(0)
		},
		"once": func(w *world) {
			w.begin("Once")
			w.converge(w.is("Running", 1))
			w.phase(kubevirtv1.PhaseSucceeded)
			w.converge(w.is("Stopped", 1))
			w.must(w.server.Delete(w.t.Context(), w.instance()))
			w.converge(w.is("Stopped", 1))
			w.strategy("RerunOnFailure")
			w.converge(w.is("Running", 2))
		},
	}
}

// begin creates the VM, as a cluster without admission would.
func (w *world) begin(strategy kubevirtv1.RunStrategy) {
	vm := newVM(strategy)
	vm.UID, vm.Finalizers, vm.Status = "", nil, kubevirtv1.VirtualMachineStatus{}
	w.must(w.create(w.t.Context(), vm))
}

// sleeps says what is wrong with a VM whose guest is to be saved.
func (w *world) sleeps(made, claims int) func() string {
	return func() string {
		vm := w.vm()
		h := vm.Status.HibernationStatus
		switch {
		case vm.Status.PrintableStatus != kubevirtv1.StatusHibernated || h == nil || h.Image == nil:
			return fmt.Sprintf("the VM is %s, with %+v", vm.Status.PrintableStatus, h)
		case w.instance() != nil || len(w.made) != made:
			return fmt.Sprintf("%d instances were made, the last is %v", len(w.made), w.instance())
		case len(w.claims()) != claims:
			return fmt.Sprintf("claims are %q, want %d", w.claims(), claims)
		case !slices.Contains(w.revisions(), h.Image.VirtualMachineRevisionName):
			return fmt.Sprintf("its revision is not among %q", w.revisions())
		}
		w.claim(h.Image.ClaimName)
		return ""
	}
}

// went: nothing is left of a hibernation but so many claims.
func (w *world) went(claims int) {
	w.t.Helper()
	if s := w.vm().Status; s.HibernationStatus != nil || s.ResumeStatus != nil && s.ResumeStatus.Phase != kubevirtv1.ResumeCleaned || len(w.claims()) != claims {
		w.t.Fatalf("left: %+v, %+v, claims %q", s.HibernationStatus, s.ResumeStatus, w.claims())
	}
	if i := w.instance(); i.Spec.StopStrategy != "" {
		w.t.Fatalf("left: stopStrategy %q", i.Spec.StopStrategy)
	}
}

// strategy is what a user sets, with other changes.
func (w *world) strategy(s kubevirtv1.RunStrategy, more ...func(*kubevirtv1.VirtualMachineSpec)) {
	w.change(func(vm *kubevirtv1.VirtualMachine) {
		*vm.Spec.RunStrategy = s
		for _, change := range more {
			change(&vm.Spec)
		}
	})
}

// remove deletes the VM. Nothing is left of it.
func (w *world) remove(made int) {
	w.must(w.server.Delete(w.t.Context(), w.vm()))
	w.converge(func() string {
		if w.vm() != nil || w.instance() != nil || len(w.made) != made {
			return fmt.Sprintf("left: %v, %v, of %d instances", w.vm(), w.instance(), len(w.made))
		}
		return ""
	})
}

// is says what is wrong with the VM, which is to be in a state after so many instances.
func (w *world) is(status kubevirtv1.PrintableStatus, made int) func() string {
	return func() string {
		vm := w.vm()
		switch instance := w.instance(); {
		case vm.Status.PrintableStatus != status:
			return fmt.Sprintf("the VM is %s, want %s; requests %v", vm.Status.PrintableStatus, status, vm.Status.StateChangeRequests)
		case len(w.made) != made:
			return fmt.Sprintf("%d instances were made, want %d", len(w.made), made)
		case len(vm.Status.StateChangeRequests) > 0:
			return fmt.Sprintf("requests are left: %v", vm.Status.StateChangeRequests)
		case status == kubevirtv1.StatusRunning && !w.guests[instance.UID]:
			return "its guest does not run"
		case status == kubevirtv1.StatusRunning && !slices.Contains(w.revisions(), run.RevisionName(vm.UID, run.Generation(instance))):
			return fmt.Sprintf("its instance's revision is not among %v", w.revisions())
		case kubevirtv1.FindCondition(vm.Status.Conditions, "Failure") != nil:
			return fmt.Sprintf("a failure is left: %v", kubevirtv1.FindCondition(vm.Status.Conditions, "Failure"))
		}
		return ""
	}
}

// TestLife: without any fault a VM does what its run strategies say. With a controller that
// fails, is killed, or is doubled at any of its writes there is no instance too many and
// nothing is left, however far its caches are behind.
func TestLife(t *testing.T) {
	all := chapters()
	maps.Copy(all, typeChapters())
	for name, chapter := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			calm := newWorld(t, fault{}, lag{})
			chapter(calm)
			suites.Walk(t)
			for i, c := range []struct {
				kind string
				lag
			}{{refusedOnce, lag{}}, {unheard, lag{}}, {doubled, lag{}}, {unheard, lag{vm: 5, instance: 1}}, {doubled, lag{vm: 1, instance: 5}}} {
				for at := 1; at <= calm.writes; at++ {
					if (at+i)%3 != 0 && !everything.Wanted() {
						continue // the short form does one of these to each write, by turns
					}
					t.Run(fmt.Sprintf("lag %v, write %d %s", c.lag, at, c.kind), func(t *testing.T) {
						chapter(newWorld(t, fault{at, c.kind}, c.lag))
					})
				}
			}
		})
	}
}

// TestStaleCaches: caches that show what is no more have nothing done.
func TestStaleCaches(t *testing.T) {
	vm := func(options ...func(*kubevirtv1.VirtualMachine)) *kubevirtv1.VirtualMachine {
		return newVM("RerunOnFailure", options...)
	}
	running, failed := made(vm(), kubevirtv1.PhaseRunning, true), made(vm(), kubevirtv1.PhaseFailed, true)
	for name, c := range map[string]struct {
		vm, seenVM             *kubevirtv1.VirtualMachine
		instance, seenInstance *kubevirtv1.VirtualMachineInstance
	}{
		"not yet started":             {vm: vm(), seenVM: vm(before(""))},
		"a request that was honoured": {vm: vm(), seenVM: vm(requests(startRequest()))},
		"the strategy before":         {vm: newVM("Halted"), seenVM: vm(requests(startRequest()))},
		"no instance":                 {vm: vm(), seenVM: vm(before("")), instance: running},
		"an instance that failed":     {vm: vm(), seenVM: vm(), seenInstance: failed},
		"a VM that is gone":           {seenVM: vm(before(""))},
		"a VM before its deletion":    {seenVM: vm(), seenInstance: failed},
		"no VM yet":                   {vm: vm(), instance: running, seenInstance: running},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fault{}, lag{})
			if c.vm != nil {
				if c.instance != nil {
					c.instance = c.instance.DeepCopy()
				}
				o := state{vm: c.vm, instance: c.instance, defaults: noDefaults, now: noon}
				c.vm.Status = *status(decideRun(o))
				w.must(w.server.Create(t.Context(), c.vm))
			}
			if c.instance != nil {
				w.must(w.server.Create(t.Context(), c.instance))
			}
			w.seen["*v1.VirtualMachine"], w.seen["*v1.VirtualMachineInstance"] = nil, nil
			if c.seenVM != nil {
				w.seen["*v1.VirtualMachine"] = c.seenVM
			}
			if c.seenInstance != nil {
				w.seen["*v1.VirtualMachineInstance"] = c.seenInstance
			}
			w.step(w.reconciler())
			if w.writes > 0 {
				t.Errorf("%d writes", w.writes)
			}
		})
	}
}

// TestRequestIsNotLost: what a user asks for while the controller writes is honoured.
func TestRequestIsNotLost(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	w.begin("Manual")
	w.converge(w.is("Stopped", 0))
	w.request(startRequest())
	w.fault = fault{w.writes + 3, asked} // the status that takes the request off the queue
	w.converge(w.is("Stopped", 1))
	if w.instance() != nil {
		t.Error("the request to stop was lost")
	}
}

// TestWrites: from its creation to Running a VM takes its revision, its instance and two
// statuses, and then nothing.
func TestWrites(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	vm := newVM("Always")
	vm.UID, vm.Status = "", kubevirtv1.VirtualMachineStatus{}
	w.must(w.create(t.Context(), vm))
	w.converge(w.is("Running", 1))
	if w.writes != 4 {
		t.Errorf("%d writes, want 4", w.writes)
	}
	if want := []string{"SuccessfulCreate: Created VirtualMachineInstance web"}; !slices.Equal(w.events, want) {
		t.Errorf("events %q, want %q", w.events, want)
	}
}

// TestCrashLoop: starts that fail wait longer each time, and the count ends with a success.
func TestCrashLoop(t *testing.T) {
	w := newWorld(t, fault{}, lag{})
	vm := newVM("Always")
	vm.UID, vm.Status = "", kubevirtv1.VirtualMachineStatus{}
	w.must(w.create(t.Context(), vm))
	r := w.reconciler()
	began := w.now
	for n := 1; n <= 3; n++ {
		for w.instance() == nil {
			w.step(r)
		}
		if waited := w.now.Sub(began); n == 3 && (waited < 50e9 || waited > 75e9) {
			t.Errorf("the third start is %v after the first", waited)
		}
		w.phase(kubevirtv1.PhaseFailed)
		for w.instance() != nil {
			w.step(r)
			w.instances()
		}
	}
	w.step(r)
	if s := w.vm().Status; s.PrintableStatus != kubevirtv1.StatusCrashLoopBackOff || s.StartFailure.ConsecutiveFailCount != 3 {
		t.Errorf("%s, %+v", s.PrintableStatus, s.StartFailure)
	}
	w.converge(w.is("Running", 4))
	if failure := w.vm().Status.StartFailure; failure != nil {
		t.Errorf("%+v is left", failure)
	}
}

// applyAgain makes the VM again once it has gone.
func (w *world) applyAgain() {
	w.change(func(vm *kubevirtv1.VirtualMachine) { vm.Finalizers = nil })
	vm := newVM("Always")
	vm.UID, vm.Status = "", kubevirtv1.VirtualMachineStatus{}
	w.must(w.create(w.t.Context(), vm))
}

// TestOrphan: a VM that is deleted without its instance leaves that running, and free; one that is
// made again under its name takes it back.
func TestOrphan(t *testing.T) {
	for _, kind := range []string{untouched, unheard, refusedOnce} {
		for at := 1; at <= 3; at++ {
			t.Run(fmt.Sprintf("write %d %s", at, kind), func(t *testing.T) {
				w := newWorld(t, fault{}, lag{})
				vm := newVM("Always")
				vm.UID, vm.Status = "", kubevirtv1.VirtualMachineStatus{}
				w.must(w.create(t.Context(), vm))
				w.converge(w.is("Running", 1))
				w.change(func(vm *kubevirtv1.VirtualMachine) {
					vm.Finalizers = append(vm.Finalizers, metav1.FinalizerOrphanDependents)
				})
				w.must(w.server.Delete(t.Context(), w.vm()))
				w.fault = fault{w.writes + at, kind}
				w.converge(func() string {
					instance := w.instance()
					switch {
					case !slices.Equal(w.vm().Finalizers, []string{metav1.FinalizerOrphanDependents}):
						return fmt.Sprintf("the VM keeps %v", w.vm().Finalizers)
					case len(w.revisions()) > 0:
						return fmt.Sprintf("left: %v", w.revisions())
					case instance == nil || !w.guests[instance.UID]:
						return "the guest is gone"
					case len(instance.OwnerReferences) > 0 || !slices.Equal(instance.Finalizers, []string{contract.FinalizerInstance}):
						return fmt.Sprintf("the instance keeps %v, %v", instance.OwnerReferences, instance.Finalizers)
					}
					return ""
				})
				w.applyAgain()
				w.converge(func() string {
					vm, instance := w.vm(), w.instance()
					if vm.Status.PrintableStatus != "Running" || len(w.made) != 1 || !metav1.IsControlledBy(instance, vm) {
						return fmt.Sprintf("the VM is %s, of %d instances; the last one is of %v", vm.Status.PrintableStatus, len(w.made), instance.OwnerReferences)
					}
					return ""
				})
				w.remove(1)
			})
		}
	}
}
