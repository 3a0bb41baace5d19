package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
)

// setAddress takes "LINK ADDRESS/BITS [GATEWAY]", and has the link up with the address, and a
// default route.
func setAddress(args []string) (string, error) {
	if len(args) != 2 && len(args) != 3 {
		return "", errors.New("usage: address LINK ADDRESS/BITS [GATEWAY]")
	}
	link, err := netlink.LinkByName(args[0])
	if err != nil {
		return "", err
	}
	address, err := netlink.ParseAddr(args[1])
	if err != nil {
		return "", err
	}
	if err := errors.Join(netlink.LinkSetUp(link), netlink.AddrReplace(link, address)); err != nil {
		return "", err
	}
	if len(args) == 3 {
		gateway, err := netip.ParseAddr(args[2])
		if err != nil {
			return "", err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice()}
		if err := netlink.RouteReplace(route); err != nil {
			return "", err
		}
	}
	return "address " + strings.Join(args, " "), nil
}

// showCarrier takes "LINK", which is up, and answers with 1 if there is something at the other
// end of it, and 0 if not.
func showCarrier(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("usage: carrier LINK")
	}
	return "carrier " + args[0] + " " + attribute("/sys/class/net", args[0], "carrier"), nil
}

// serve takes "PORT WORD", and says the word to who connects to the port.
func serve(args []string) (string, error) {
	if len(args) != 2 {
		return "", errors.New("usage: serve PORT WORD")
	}
	listener, err := net.Listen("tcp", ":"+args[0])
	if err != nil {
		return "", err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(conn, args[1]) // who has gone need not hear it
			conn.Close()
		}
	}()
	return "serve " + args[0], nil
}

// stream takes "out|in HOST:PORT", and sends to it, or reads from it, until the other end has
// had enough.
func stream(args []string) (string, error) {
	if len(args) != 2 {
		return "", errors.New("usage: stream out|in HOST:PORT")
	}
	conn, err := net.Dial("tcp", args[1])
	if err != nil {
		return "", err
	}
	defer conn.Close()
	block, move := make([]byte, 128<<10), conn.Write
	if args[0] == "in" {
		move = conn.Read
	}
	for total := 0; ; {
		n, err := move(block)
		if total += n; err != nil {
			return fmt.Sprintf("stream of %d bytes", total), nil
		}
	}
}

// greet answers with what somebody who serves says.
func greet(args []string) (string, error) {
	if len(args) != 1 {
		return "", errors.New("usage: greet HOST:PORT")
	}
	conn, err := net.Dial("tcp", args[0])
	if err != nil {
		return "", err
	}
	defer conn.Close()
	word, err := bufio.NewReader(io.LimitReader(conn, maxShown)).ReadString('\n')
	return "greeted by " + word, err
}
