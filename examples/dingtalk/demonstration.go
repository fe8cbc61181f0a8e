package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// Without a key, the demonstration runs addressbook.go against a DingTalk for
// tests, which counts the calls.
var (
	withPage  = flag.Bool("dashboard", false, "without a key: show the budgets on a page, and pull until you interrupt")
	processes = flag.Int("processes", 1, "without a key: how many processes pull together")
	people    = flag.Int("people", 3000, "how many people the processes pull")
	at        = flag.String("at", "", "with a key: `host:port` of a DingTalk for tests, in place of DingTalk")
	of        = flag.String("part", "", "which of the processes this is; the program sets it itself")
)

func init() { pull = demonstrate }

// demonstrate is pull in this program: it pulls with the key of the environment or, without a key, from a DingTalk for tests. Without a key -processes
// has it start several processes, and each of these pulls the part of its -part.
func demonstrate(b *book, ctx context.Context, c throttle.Config) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second interrupt ends the program at once
	c.Observe = tell
	logging.Disable() // go-redis logs each failed dial; tell prints it once in ten seconds

	// Look at -part first: it has a key of its own.
	switch {
	case *of != "":
		return b.pullPart(ctx, c, *of)
	case b.key != "" && b.secret != "":
		if *at != "" {
			c.Base = tests(*at)
		}
		return b.pull(ctx, c)

	case b.key != "" || b.secret != "":
		return errors.New("set both DINGTALK_APP_KEY and DINGTALK_APP_SECRET, or for the demonstration none of them")
	case *processes > 1:
		atRedis := flag.Lookup("redis").Value.String() // main has this flag
		return runTogether(ctx, os.Stdout, *processes, *people, atRedis)
	}

	return b.pullFake(ctx, os.Stdout, c, *withPage)
}

// pullFake pulls from a DingTalk for tests in this process, and prints to w how many people came, and the counts of the calls. With page it
// serves a page of the budgets, and pulls again and again until ctx ends.
func (b *book) pullFake(ctx context.Context, w io.Writer, c throttle.Config, page bool) error {
	fake := dingtalktest.New(dingtalktest.Options{}) // counts, refuses and bans like DingTalk
	b.key, b.secret = demonstrationKey(), "secret"
	c.Base, c.Policies = fake, demonstrationPolicies(b.key)
	show = func(...any) (int, error) { return 0, nil } // thousands of names would hide the counts

	if page {
		if err := showPage(ctx, w, &c, "127.0.0.1:7071"); err != nil {
			return err
		}
	}

	fmt.Fprintln(w, "pulling an address book, which takes about eight seconds")
	begin := time.Now()
	err := b.pull(ctx, c)
	people, took := b.people(), time.Since(begin)

	// Only budgets in use have something to show. An interrupt is the regular end.
	for page && err == nil {
		err = b.pull(ctx, c)
	}
	if page && ctx.Err() != nil {
		err = nil
	}

	fmt.Fprintf(w, "pulled %d people in %.1f s\n\n", people, took.Seconds())
	fmt.Fprint(w, fake)
	return err
}

// people returns how many people were shown so far.
func (b *book) people() (n int) {
	b.met.Range(func(any, any) bool {
		n++
		return true
	})
	return n
}

// demonstrationKey returns a new key: Redis may still hold the token of an earlier run.
func demonstrationKey() string { return fmt.Sprintf("dingdemo%d", time.Now().UnixNano()) }

// demonstrationPolicies returns the program's policies. Their budgets are separate from those of real
// programs in the same Redis.
func demonstrationPolicies(key string) []throttle.Policy {
	return dingtalk.Policies(dingtalk.Options{App: key, Company: "demonstration", Address: "demonstration"})
}

// lately has the time at which each line was last printed.
var lately sync.Map

// tell prints why nothing happens: a refusal, or a store that does not answer. It prints each line at most once in ten seconds.
func tell(_ context.Context, e throttle.Event) {
	line := ""
	switch e.Kind {
	case throttle.EventPenalized:
		line = fmt.Sprintf("DingTalk has refused a call: %s is closed for %v", e.Policy, e.Duration)
	case throttle.EventStoreFailed:
		line = fmt.Sprint("waiting: ", e.Err)
	default:
		return
	}

	// Swap the time before looking at the former one: of several goroutines with the same line only one prints it. The others put the time back.
	now := time.Now()
	before, printed := lately.Swap(line, now)
	if printed && now.Sub(before.(time.Time)) < 10*time.Second {
		lately.Store(line, before)
		return
	}

	log.Print(line)
}

// showPage begins to serve a page of budgets at address, or at any free port if that is in use, until ctx ends. It changes c: the page shows
// the budgets of the transport that is made from c.
func showPage(ctx context.Context, w io.Writer, c *throttle.Config, address string) error {
	// The page sees the budgets through the store and the observer of the transport.
	watched := dashboard.NewProcess(c.Store)
	c.Store, c.Observe = watched, watched.Observe
	token := rand.Text() // opens the page; a real program reads it from its environment
	page, err := dashboard.New(dashboard.Config{Source: watched, Token: token, Title: "Address book"})
	if err != nil {
		return err
	}

	listener, err := net.Listen("tcp", address)
	if err != nil {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return err
		}
	}

	server := &http.Server{Handler: page, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }() // until it is closed
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintf(w, "the page is at http://%s/#token=%s until you interrupt\n", listener.Addr(), token)

	return nil
}
