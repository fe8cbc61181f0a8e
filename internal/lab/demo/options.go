package main

import (
	"errors"
	"flag"
	"time"

	"github.com/fleetthrottle/throttle/internal/acquire"
)

// options are the flags.
type options struct {
	nodes, workers, people int
	address                int
	redis                  string
	unthrottled, provoke   bool
	ban, jitter            time.Duration
	svg, halves            string
	node                   string // the host of the upstream, for a process that is a node
}

// parse reads the flags. Those that there are not end the program.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("demo", flag.ExitOnError)
	f.IntVar(&o.nodes, "nodes", 4, "nodes in the fleet")
	f.IntVar(&o.workers, "workers", 16, "workers of each node")
	f.IntVar(&o.people, "people", 3000, "people in the address book")
	f.IntVar(&o.address, "address", 10_000, "calls from one address that DingTalk takes in 20 s; one more bans it")
	f.StringVar(&o.redis, "redis", "", "`URL` of a Redis; the nodes are then processes that share it")
	f.BoolVar(&o.unthrottled, "unthrottled", false, "leave the library out, and let DingTalk take a hundredth of -address")
	f.BoolVar(&o.provoke, "provoke", false, "another program behind the same address gets it banned in the middle of the job")
	f.DurationVar(&o.ban, "ban", 5*time.Minute, "how long a ban lasts")
	f.DurationVar(&o.jitter, "jitter", acquire.DefaultJitter, "how long a call may be on its way; more on a busy machine")
	f.StringVar(&o.svg, "svg", "", "`file` for a picture of the calls")
	f.StringVar(&o.halves, "halves", "", "`folder` for a picture of the job without the library and with it")
	f.StringVar(&o.node, "node", "", "be a node that calls this `host`; for the program itself")
	_ = f.Parse(args) // an error has ended the program

	switch {
	case f.NArg() > 0 || o.nodes < 1 || o.workers < 1 || o.people < 1 || o.address < 100 || o.ban <= 0 || o.jitter <= 0:
		return o, errors.New("there are only flags, and all numbers are positive, -address at least 100")
	case (o.unthrottled || o.halves != "") && (o.redis != "" || o.provoke) || o.unthrottled && o.halves != "":
		return o, errors.New("-unthrottled, -halves, -redis and -provoke exclude each other, but for -redis with -provoke")
	}

	return o, nil
}
