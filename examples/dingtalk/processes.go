package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/filestore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/retry"
)

// A part is what one of several processes pulls: each n-th department below the first one. The processes
// know nothing of each other. They share the limits through a directory.
type part struct {
	i, n int
	host string // where DingTalk is
	dir  string // where the budgets are
}

// String returns the part as the flag -part has it.
func (p part) String() string { return fmt.Sprintf("%d %d %s %s", p.i, p.n, p.host, p.dir) }

func parsePart(s string) (p part, err error) {
	_, err = fmt.Sscanf(s, "%d %d %s %s", &p.i, &p.n, &p.host, &p.dir)
	return p, err
}

// isMine reports whether a process pulls the department with that number, and all departments below it.
func (p part) isMine(number int) bool { return number%p.n == p.i }

// runTogether starts this program n times, and counts what all of them pull.
func runTogether(ctx context.Context, w io.Writer, n, people int) error {
	dir, err := os.MkdirTemp("", "budgets")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := os.Executable()
	if err != nil {
		return err
	}
	fake := dingtalktest.New(dingtalktest.Options{People: people})
	server := httptest.NewServer(fake)
	defer server.Close()
	fmt.Fprintf(w, "%d processes with %d workers each pull an address book together\n", n, workers)

	begin := time.Now()
	outs := make([]bytes.Buffer, n)
	var all []*exec.Cmd
	for i := range n {
		c := exec.CommandContext(ctx, program, "-part", part{i, n, server.Listener.Addr().String(), dir}.String())
		c.Stdout, c.Stderr = &outs[i], os.Stderr
		if err = c.Start(); err != nil {
			break
		}
		all = append(all, c)
	}
	sum := 0
	for i, c := range all {
		var pulled int
		if failed := c.Wait(); failed != nil {
			err = failed
		} else if _, failed := fmt.Sscan(outs[i].String(), &pulled); failed != nil {
			err = failed
		}
		sum += pulled
	}
	fmt.Fprintf(w, "pulled %d people in %.1f s\n\n", sum, time.Since(begin).Seconds())
	fmt.Fprint(w, fake)
	return err
}

// runPart is one of the processes. It writes how many people it has pulled.
func runPart(ctx context.Context, w io.Writer, p part) error {
	store, err := filestore.Open(p.dir) // redisstore.New(rdb, nil) for programs on several machines
	if err != nil {
		return err
	}
	policies := dingtalk.Policies(dingtalk.Options{App: "dingabc", Host: p.host})
	for i := range policies {
		policies[i].Jitter = 200 * time.Millisecond // DingTalk is on this machine too, and may be short of processors
	}
	base := &http.Transport{MaxIdleConnsPerHost: workers}
	defer base.CloseIdleConnections()
	transport, err := throttle.New(throttle.Config{Store: store, Policies: policies, Base: base})
	if err != nil {
		return err
	}
	b := book{client: retry.NewClient(transport).StandardClient(), url: "http://" + p.host, isMine: p.isMine}
	if err := b.pull(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(w, len(b.people))
	return err
}
