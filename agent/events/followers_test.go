package events

import "testing"

// TestFollowers: each is woken once for any number of changes that it has not looked at, and
// none after it has stopped.
func TestFollowers(t *testing.T) {
	var f Followers
	f.Wake() // nobody
	slow, stopSlow := f.Follow()
	gone, stopGone := f.Follow()
	<-slow
	<-gone
	f.Wake()
	f.Wake()
	<-slow
	<-gone
	stopGone()
	f.Wake()
	<-slow
	for name, c := range map[string]<-chan struct{}{"slow": slow, "gone": gone} {
		select {
		case <-c:
			t.Errorf("%s was woken once too often", name)
		default:
		}
	}
	stopSlow()
	if f.Any() {
		t.Error("somebody follows still")
	}
}
