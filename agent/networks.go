package agent

import (
	"context"
	"fmt"
	"os"

	"github.com/vmlet/vmlet/agent/config"
	"github.com/vmlet/vmlet/podnet/helper"
)

// startHelper starts the process that makes guests' networks in pods, while this one still has
// the rights to hand down. The program that this one becomes finds it in its environment.
func startHelper(cfg config.Config) {
	if !*cfg.Network.Helper || os.Getenv(helper.Variable) != "" {
		return
	}
	if err := helper.Start(); err != nil {
		cfg.Log.Warn("guests are not connected to their pods' networks", "error", err)
	}
}

// networkHelper takes the helper over that startHelper has started. Its end is the agent's,
// as end says: only a new agent has the rights to start another. nil: there is none.
func (p *program) networkHelper(life context.Context, end func(error)) (*helper.Client, error) {
	client, err := helper.Inherited()
	if client == nil || err != nil {
		return nil, err
	}
	p.background.Go(func() {
		defer client.Close()
		if err := client.Refused(life); err != nil && life.Err() == nil {
			p.cfg.Log.Warn("guests are not connected to their pods' networks", "error", err)
			return
		}
		select {
		case <-client.Ended():
			end(fmt.Errorf("%w: the agent ends, as it can't start another", helper.ErrEnded))
		case <-life.Done():
		}
	})
	return client, nil
}
