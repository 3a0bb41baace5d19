package server

// saves is the room for images: guests are saved, and go on if that is undone.
type saves struct {
	*session
	clearing string // the folder of a save that is being removed; guarded by mu
}
