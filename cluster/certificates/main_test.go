package certificates

import (
	"os"
	"testing"

	"github.com/vmlet/vmlet/test/suites"
)

func TestMain(m *testing.M) { os.Exit(suites.StartsVMs(m)) }
