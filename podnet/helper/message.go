package helper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// errMessage is wrapped by errors about a message that is out of bounds. The next one is
// independent of it.
var errMessage = errors.New("not the network helper's protocol")

// receiveMessage takes one message in, with no more bytes and files than said: one that has
// more is an error, and its files are closed.
func receiveMessage(conn *net.UnixConn, bytes, most int) ([]byte, []*os.File, error) {
	body, rights := make([]byte, bytes), make([]byte, unix.CmsgSpace(most*4))
	n, nrights, flags, _, err := conn.ReadMsgUnix(body, rights)
	if err != nil {
		return nil, nil, err
	}
	files, err := filesOf(rights[:nrights])
	switch {
	case err != nil:
	case n == 0 && nrights == 0 && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) == 0:
		err = io.EOF
	case flags&unix.MSG_TRUNC != 0:
		err = fmt.Errorf("%w: a message of more than %d bytes", errMessage, bytes)
	case flags&unix.MSG_CTRUNC != 0 || len(files) > most:
		err = fmt.Errorf("%w: more than %d descriptors", errMessage, most)
	}
	if err != nil {
		closeAll(files)
		return nil, nil, err
	}
	return body[:n], files, nil
}

func filesOf(rights []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMessage, err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("%w: %w", errMessage, err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
