package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vmlet/vmlet/test/cluster"
)

// image is one of vmlet's, which a target of the Makefile makes.
type image struct {
	target, tar string
	// programs are what is in it, with what runs each all the time: "" for those that VMs and people start.
	programs map[string]string
}

func images() []image {
	return []image{
		{"node-image", "dist/vmlet-image.tar", map[string]string{
			"vmlet": "", "vmlet-agent": "daemonset/vmlet-agent", "vmlet-shim": "", "vmlet-importer": "",
		}},
		{"cluster-image", "dist/vmlet-cluster-image.tar", map[string]string{
			"vmlet-controller": "deployment/vmlet-controller", "vmlet-api": "deployment/vmlet-api", "vmlet-autopilot": "deployment/vmlet-autopilot",
		}},
	}
}

// sums are those of the programs that are in images, by their names.
func sums(folder string) (map[string]string, error) {
	all := make(map[string]string)
	for _, i := range images() {
		for name := range i.programs {
			content, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			all[name] = fmt.Sprintf("%x", sha256.Sum256(content))
		}
	}
	return all, nil
}

// noted is the file, in the cluster's folder, with the sums of the programs that the cluster has.
func noted(c *cluster.Cluster) string {
	return filepath.Join(filepath.Dir(c.Kubeconfig()), "programs.json")
}

func note(c *cluster.Cluster, sums map[string]string) error {
	text, err := json.Marshal(sums)
	if err != nil {
		return err
	}
	return os.WriteFile(noted(c), text, 0o600)
}

// change is an image that has to be made again, and what then has to be restarted.
type change struct {
	image
	programs, workloads []string
}

// changes are what differs between the programs that a cluster has and those that were built.
func changes(has, built map[string]string) (all []change) {
	for _, i := range images() {
		c := change{image: i}
		for name, workload := range i.programs {
			if has[name] == built[name] {
				continue
			}
			c.programs = append(c.programs, name)
			if workload != "" {
				c.workloads = append(c.workloads, workload)
			}
		}
		if len(c.programs) > 0 {
			slices.Sort(c.programs)
			slices.Sort(c.workloads)
			all = append(all, c)
		}
	}
	return all
}

// redeploy puts the programs of a folder that differ from those of the cluster into it, and returns when they run.
func redeploy(ctx context.Context, folder string) (err error) {
	began := time.Now()
	kubeconfig, err := cluster.Shared()
	if err != nil {
		return err
	}
	if kubeconfig == "" {
		return errors.New("no cluster runs here: start one with make cluster, in another terminal with the same TMPDIR")
	}
	c, err := cluster.Join(kubeconfig, say)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	var has map[string]string
	text, err := os.ReadFile(noted(c))
	if err == nil {
		err = json.Unmarshal(text, &has)
	}
	if err != nil {
		return err
	}
	built, err := sums(folder)
	if err != nil {
		return err
	}
	all := changes(has, built)
	if len(all) == 0 {
		say("its programs are those of %s already", folder)
		return nil
	}
	var each errgroup.Group
	for _, one := range all {
		each.Go(func() error { return one.apply(ctx, c) })
	}
	if err := each.Wait(); err != nil {
		return err
	}
	say("done, after %s", time.Since(began).Round(time.Second))
	return note(c, built)
}

// apply makes the image, imports it, and restarts what runs it. What an administrator has removed stays away.
func (c change) apply(ctx context.Context, in *cluster.Cluster) error {
	say("%s: %s changed", c.tar, strings.Join(c.programs, ", "))
	out, err := exec.CommandContext(ctx, "make", "--no-print-directory", c.target, "PACKAGES=--any").CombinedOutput()
	if err != nil {
		return fmt.Errorf("make %s: %w\n%s", c.target, err, out)
	}
	if err := in.LoadImage(ctx, c.tar); err != nil {
		return err
	}
	var each errgroup.Group
	for _, workload := range c.workloads {
		each.Go(func() error {
			if there, err := in.Kubectl(ctx, "-n", "vmlet", "get", workload, "--ignore-not-found", "-o", "name"); err != nil || there == "" {
				return err
			}
			say("restarting %s", workload)
			if _, err := in.Kubectl(ctx, "-n", "vmlet", "rollout", "restart", workload); err != nil {
				return err
			}
			return in.RolledOut(ctx, "vmlet", workload)
		})
	}
	if len(c.workloads) == 0 {
		say("VMs that start from now on have them")
	}
	return each.Wait()
}
