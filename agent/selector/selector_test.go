package selector

import "testing"

func TestSelector(t *testing.T) {
	labels := map[string]string{"app": "web", "tier": "", "example.com/zone": "a"}
	for _, c := range []struct {
		selector string
		want     bool
	}{
		{"", true}, {" ", true},
		{"app=web", true}, {"app==web", true}, {"app=db", false},
		{"app!=web", false}, {"app!=db", true}, {"other!=x", true},
		{"app", true}, {"tier", true}, {"other", false}, {"!other", true}, {"!app", false},
		{"tier=", true}, {"app=", false},
		{"app=web, example.com/zone=a", true}, {"app=web,example.com/zone=b", false},
	} {
		s, err := Parse(c.selector)
		if err != nil {
			t.Errorf("%q: %v", c.selector, err)
			continue
		}
		if got := s.Matches(labels); got != c.want {
			t.Errorf("%q: %v, want %v", c.selector, got, c.want)
		}
	}
	for _, wrong := range []string{"app in (web)", "=x", ",", "app=web,", "!", "a b", "a=b=c"} {
		if _, err := Parse(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
