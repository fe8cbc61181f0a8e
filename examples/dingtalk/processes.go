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
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/retry"
	"github.com/fleetthrottle/throttle/stores/filestore"
)

// A part is the work of one of several processes: every n-th department below the first. The processes do not
// know of each other. They share the limits through a directory, or through the Redis of -redis.
type part struct {
	i, n int
	host string // of the DingTalk for tests
	dir  string // of the budgets
	key  string // of the application
}

// String returns the part in the form of the flag -part.
func (p part) String() string { return fmt.Sprintf("%d %d %s %s %s", p.i, p.n, p.host, p.dir, p.key) }

// parsePart returns the part of a text that String has returned.
func parsePart(s string) (p part, err error) {
	_, err = fmt.Sscanf(s, "%d %d %s %s %s", &p.i, &p.n, &p.host, &p.dir, &p.key)
	return p, err
}

// testConns has connections to a DingTalk for tests: twenty calls may start at
// once.
var testConns = &http.Transport{MaxIdleConnsPerHost: 64}

// tests is the address of a DingTalk for tests.
type tests string

// RoundTrip sends requests for DingTalk to the DingTalk for tests.
func (host tests) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host = "http", string(host)
	return testConns.RoundTrip(r)
}

// runTogether starts n processes that pull together from a DingTalk for tests in this one. It prints to w how many people came, and the counts of
// the calls. Its error is that of a process, or why one could not be started.
func runTogether(ctx context.Context, w io.Writer, n, people int, redisURL string) error {
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
	fmt.Fprintf(w, "%d processes pull an address book together\n", n)

	begin, key := time.Now(), demonstrationKey()
	outs := make([]bytes.Buffer, n)

	var all []*exec.Cmd
	for i := range n {
		p := part{i, n, server.Listener.Addr().String(), dir, key}
		c := exec.CommandContext(ctx, program, "-part", p.String(), "-redis", redisURL)
		c.Stdout, c.Stderr = &outs[i], os.Stderr
		if err = c.Start(); err != nil {
			break // wait for those that have started
		}
		all = append(all, c)
	}

	// Each process prints a line for each person. A person in two departments may be in two parts.
	met := make(map[string]bool)
	for i, c := range all {
		// Wait for all processes, even if one has failed.
		if failed := c.Wait(); failed != nil {
			err = failed
		}
		for line := range strings.Lines(outs[i].String()) {
			met[line] = true
		}
	}

	fmt.Fprintf(w, "pulled %d people in %.1f s\n\n", len(met), time.Since(begin).Seconds())
	fmt.Fprint(w, fake)
	return err
}

// pullPart is the work of one process: it shows the people of the part that text, the value of -part, describes.
func (b *book) pullPart(ctx context.Context, c throttle.Config, text string) error {
	p, err := parsePart(text)
	if err != nil {
		return err
	}

	// Without Redis a folder has the budgets that the processes share.
	if b.rdb == nil {
		if c.Store, err = filestore.New(p.dir, filestore.Options{}); err != nil {
			return err
		}
	}

	b.key, b.secret = p.key, "secret"
	c.Base, c.Policies = tests(p.host), demonstrationPolicies(p.key)
	for i := range c.Policies {
		c.Policies[i].Jitter = 200 * time.Millisecond // DingTalk runs on this machine, too, and may be short of processors
	}

	transport, err := throttle.New(c)
	if err != nil {
		return err
	}

	b.client = retry.NewClient(transport)
	ctx, b.fail = context.WithCancelCause(ctx)

	a, err := b.call(ctx, "/topapi/v2/department/listsubid", `{"dept_id":%d}`, first)
	if err != nil {
		return err
	}

	// Each process takes every n-th department.
	for i, below := range a.Result.Below {
		if i%p.n == p.i {
			b.departments.Go(func() { b.department(ctx, below) })
		}
	}

	// The first process also takes the people of the first department itself, page by page. runTogether leaves out those that were shown before.
	for more := p.i == 0; more && err == nil; more = a.Result.More {
		a, err = b.call(ctx, "/topapi/v2/user/list", `{"dept_id":%d,"cursor":%d,"size":100}`, first, a.Result.Next)
		for _, person := range a.Result.List {
			show(person.UserID, person.Name)
		}
	}

	if err != nil {
		b.fail(err)
	}

	b.departments.Wait()
	return context.Cause(ctx)
}

// first is the root department.
const first = 1
