package virtualmachines_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vmlet/vmlet/test/cluster"
	"github.com/vmlet/vmlet/test/everything"
	"github.com/vmlet/vmlet/test/suites"
)

// atATime is how many tests run at once. They wait for the cluster most of the time: few of
// their guests take a processor.
const atATime = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	log.SetLogger(logr.Discard()) // the client has nothing to say
	if err := flag.Set("test.parallel", atATime); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(suites.StartsVMs(m))
}

// TestVirtualMachines has one cluster for all, as a cluster takes longer than most of it.
func TestVirtualMachines(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	if err := cluster.Unfit(); err != nil {
		t.Skip(err)
	}
	if *starts > 0 {
		v := newCluster(t, cluster.Options{}) // as Multus and a second address take most of a pod's start
		v.deploy(t)
		v.part(t, "start times", v.testStartTimes)
		return
	}
	v := join(t)
	if v == nil {
		setHugePagesAside(t)
		v = install(t, withHypervisor(t))
	}
	if *times > 0 {
		v.part(t, "hibernation times", v.testHibernationTimes)
		return
	}
	v.all(t)
	if !v.partsRan {
		t.Errorf("no part is called %s: there are %s", filter(), strings.Join(v.parts, ", "))
	}
}

// all are the parts, of every day or all that there are.
func (v *installed) all(t *testing.T) {
	if !everything.Wanted() {
		v.short(t)
		return
	}
	v.part(t, "writes", v.testWrites) // before others write
	v.atOnce(t, map[string]func(*testing.T){
		"columns": v.testColumns, "strategies": v.testStrategies, "failure": v.testFailure, "running": v.testRunning,
		"requests": v.testRequests, "grace": v.testGrace, "paused": v.testPaused, "crash loop": v.testCrashLoop, "missing": v.testMissing,
		"restart required": v.testRestartRequired, "admission": v.testAdmission, "eviction": v.testEviction,
		"deletion": v.testDeletion, "hurried deletion": v.testHurriedDeletion, "namespace": v.testNamespace,
	})
	v.part(t, "nothing left", v.nothingLeft)
	v.part(t, "network", v.testNetwork)
	v.part(t, "claims", v.testClaims)
	v.part(t, "imports", v.testImports)
	v.part(t, "live size", v.testLiveSize)
	v.part(t, "imported Debian", v.testImportedDebian)
	v.part(t, "hibernate", v.testHibernate)
	v.part(t, faultsPart, v.testHibernateFaults)
	v.part(t, suspendPart, v.testSuspendToDisk)
	v.part(t, "volumes", v.testVolumes)
	v.part(t, "multus", v.testMultus)
	v.part(t, "guest", v.testGuest)
	v.part(t, "growing", v.testGrowing)
	v.part(t, "many", v.testMany)
	v.part(t, "pool", v.testPool)
	v.part(t, autoscalingPart, v.testAutoscaling)
	v.part(t, "access", v.testAccess)
	v.part(t, "virtctl", v.testVirtctl)
	v.part(t, "stack with a VMM", v.testCloudStack)
	v.part(t, "stack with a driver", v.testDriverStack)
	v.part(t, hypervisorPart, v.testHypervisor)
	v.part(t, "restarts", v.testRestarts)
	v.part(t, "admission away", v.testAdmissionAway)
	v.part(t, "API away", v.testAPIAway)
	v.part(t, lostSightPart, v.testLostSight)
	v.part(t, deadNodePart, v.testDeadNode)
	v.part(t, "autopilot", v.testAutopilot)
	v.part(t, "uninstall", v.testUninstall)
	v.part(t, "uninstall as documented", v.testUninstallAsDocumented)
}

// rare are parts that the short form has where they are named.
func (v *installed) rare() map[string]func(*testing.T) {
	return map[string]func(*testing.T){faultsPart: v.testHibernateFaults, lostSightPart: v.testLostSight, deadNodePart: v.testDeadNode, suspendPart: v.testSuspendToDisk,
		autoscalingPart: v.testAutoscaling}
}

// short are the parts of every day: the others take a quarter of an hour.
func (v *installed) short(t *testing.T) {
	for name, test := range v.rare() {
		if named(name) {
			v.part(t, name, test)
		}
	}
	v.part(t, "writes", v.testWrites) // before others write
	v.part(t, "network", v.testNetwork)
	v.part(t, "multus", v.testMultus)
	v.part(t, "guest", v.testGuest)
	v.part(t, "claims", v.testClaims)
	v.part(t, "crash loop", v.testCrashLoop)
	v.part(t, "live size", v.testLiveSize)
	v.part(t, "imports", v.testImports)
	v.part(t, "hibernate", v.testHibernate)
	v.part(t, "pool", v.testPool)
	v.part(t, "access", v.testAccess)
	v.part(t, "virtctl", v.testVirtctl)
	v.part(t, "stack with a VMM", v.testCloudStack)
	v.part(t, "stack with a driver", v.testDriverStack)
	v.part(t, hypervisorPart, v.testHypervisor)
	v.part(t, "admission away", v.testAdmissionAway)
	v.part(t, "API away", v.testAPIAway)
	v.part(t, "autopilot", v.testAutopilot)
	v.part(t, "uninstall", v.testUninstall)
	v.part(t, "uninstall as documented", v.testUninstallAsDocumented)
}

// filter is what -run says of parts' names; empty: all of them run.
func filter() string {
	_, parts, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	return strings.ReplaceAll(parts, "_", " ")
}

// named: a part that runs where everything does is asked for by its name.
func named(part string) bool {
	return strings.Contains(filter(), part)
}

// part runs a test, and tells how it looks in the cluster if it fails.
func (v *installed) part(t *testing.T, name string, test func(*testing.T)) {
	v.parts = append(v.parts, name)
	passed := t.Run(name, func(t *testing.T) {
		v.partsRan = true
		test(t)
	})
	if !passed {
		v.describe(t)
	}
}

// atOnce runs tests that don't mind each other. One that is named runs alone, as any other part.
func (v *installed) atOnce(t *testing.T, tests map[string]func(*testing.T)) {
	if filter() != "" {
		for name, test := range tests {
			v.part(t, name, test)
		}
		return
	}
	v.part(t, "at once", func(t *testing.T) {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
}
