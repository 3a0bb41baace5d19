package server

// saves is the room for images: guests are saved, and go on if that is undone.
type saves struct {
	*session
	rollback *rollback
}

func newSaves(one *session) *saves { return &saves{session: one, rollback: &rollback{session: one}} }
