package importers

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vmlet/vmlet/contract"
)

const (
	progressPatience = 2 * time.Second
	maxProgress      = 16
)

// NewProgress returns what asks importers' pods for their progress, by HTTP. A pod that does not
// answer, as its network is closed to vmlet-controller, is imported by all the same.
func NewProgress() func(context.Context, *corev1.Pod) float64 {
	c := &http.Client{
		Timeout:       progressPatience,
		Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 4 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("it redirects") },
	}
	return func(ctx context.Context, p *corev1.Pod) float64 {
		if p.Status.PodIP == "" {
			return -1
		}
		address := "http://" + net.JoinHostPort(p.Status.PodIP, strconv.Itoa(contract.ImporterPort))
		percent, err := ask(ctx, c, address)
		if err != nil {
			return -1
		}
		return percent
	}
}

func ask(ctx context.Context, c *http.Client, address string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	response, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProgress))
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
}
