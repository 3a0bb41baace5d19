package sysfs

import "testing"

func TestOwnRoots(t *testing.T) {
	for _, c := range []struct {
		roots      Roots
		files, own bool
	}{
		{Roots{}, true, true},
		{Roots{"/sys", "/proc", "/dev"}, true, true},
		{Roots{Sys: "/sys/", Proc: "//proc"}, true, true},
		{Roots{Dev: "/host/dev"}, true, false},
		{Roots{Sys: "/host/sys"}, false, false},
		{Roots{Proc: "/tmp/proc"}, false, false},
	} {
		if c.roots.OwnFiles() != c.files || c.roots.Own() != c.own {
			t.Errorf("%+v: own files %v, all own %v", c.roots, c.roots.OwnFiles(), c.roots.Own())
		}
	}
}
