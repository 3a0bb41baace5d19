package ram

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmlet/vmlet/plan"
	"github.com/vmlet/vmlet/test/hugetlb"
)

// TestMakeFails: nothing that Make made stays, and what was there does.
func TestMakeFails(t *testing.T) {
	m := plan.Memory{Path: filepath.Join(t.TempDir(), "ram"), Size: hugetlb.Page, PageSize: hugetlb.Page}
	if _, _, err := Make(m, nil); err == nil || !strings.Contains(err.Error(), "memory.hugePages: "+m.Path+" is not on a hugetlbfs") {
		t.Errorf("no hugetlbfs: %v", err)
	}
	if _, err := os.Stat(m.Path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after a failure the file is there: %v", err)
	}
	m.PageSize = 0
	_, free, err := Make(m, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Make(m, nil); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "left over, or another VM's") {
		t.Errorf("a second one: %v", err)
	}
	if st, err := os.Stat(m.Path); err != nil || st.Size() != hugetlb.Page || st.Mode().Perm() != 0o600 {
		t.Errorf("the first one is not as it was: %v, %v", st, err)
	}
	if err := errors.Join(free(), free()); err != nil {
		t.Error(err)
	}
}
