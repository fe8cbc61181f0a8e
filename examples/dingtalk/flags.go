package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
)

// A config is what the flags and the environment say.
type config struct {
	nodes, workers, people int
	edition                string
	redis                  string
	unthrottled, provoke   bool
	ban                    time.Duration
	base                   string // "": the fake
	key, secret            string
	jitter                 time.Duration
	svg                    string
}

// editions says what each edition of DingTalk allows.
var editions = map[string]dingtalk.Edition{
	"standard": dingtalk.Standard, "professional": dingtalk.Professional, "exclusive": dingtalk.Exclusive,
}

// parse reads the command line. Errors are already told to out.
func parse(args []string, out io.Writer) (config, error) {
	var c config
	f := flag.NewFlagSet("dingtalk", flag.ContinueOnError)
	f.SetOutput(out)
	f.IntVar(&c.nodes, "nodes", 4, "nodes in the fleet")
	f.IntVar(&c.workers, "workers", 16, "workers of each node")
	f.IntVar(&c.people, "people", 3000, "people in the fake's company")
	f.StringVar(&c.edition, "edition", "standard", "standard, professional or exclusive: 20, 40 or 60 calls a second")
	f.StringVar(&c.redis, "redis", "", "`URL` of a Redis; the nodes are then processes of their own")
	f.BoolVar(&c.unthrottled, "unthrottled", false, "see what the fake does to a fleet without the library")
	f.BoolVar(&c.provoke, "provoke", false, "another program behind the same address gets it banned in the middle of the job")
	f.DurationVar(&c.ban, "ban", 5*time.Minute, "how long that ban lasts")
	f.StringVar(&c.base, "base", "", "`URL` of DingTalk's old host, such as https://oapi.dingtalk.com; defaults to the fake")
	f.StringVar(&c.key, "appkey", "", "app key; defaults to $DINGTALK_APP_KEY")
	f.StringVar(&c.secret, "appsecret", "", "app secret; defaults to $DINGTALK_APP_SECRET, where nobody sees it")
	f.DurationVar(&c.jitter, "jitter", throttle.DefaultJitter, "how long a call may be on its way; more on a busy machine or a far network")
	f.StringVar(&c.svg, "svg", "dingtalk.svg", "`file` for the picture; empty for none")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.key = cmp.Or(c.key, os.Getenv("DINGTALK_APP_KEY"))
	c.secret = cmp.Or(c.secret, os.Getenv("DINGTALK_APP_SECRET"))
	c.base = strings.TrimSuffix(c.base, "/")
	if err := c.check(f.NArg()); err != nil {
		fmt.Fprintln(out, "dingtalk:", err)
		return c, err
	}
	return c, nil
}

// check reports every mistake at once.
func (c *config) check(extra int) error {
	var errs []error
	add := func(wrong bool, text string) {
		if wrong {
			errs = append(errs, errors.New(text))
		}
	}
	add(extra > 0, "there are only flags, no arguments")
	add(c.nodes < 1 || c.workers < 1 || c.people < 1, "-nodes, -workers and -people must be at least 1")
	add(c.jitter <= 0, "-jitter must be positive")
	add(editions[c.edition].PerSecond == 0, "-edition is standard, professional or exclusive")
	add(c.ban <= 0, "-ban must be positive")
	add(c.unthrottled && c.redis != "", "-unthrottled uses no store: leave -redis out")
	add(c.unthrottled && c.provoke, "-unthrottled is banned without being provoked: leave -provoke out")
	add((c.unthrottled || c.provoke) && c.real(), "-unthrottled and -provoke are for the fake only: the real DingTalk would ban this address")
	add(c.real() && (c.key == "" || c.secret == ""), "a real DingTalk needs -appkey and -appsecret, or the environment")
	base, err := url.Parse(c.base)
	add(err != nil || c.real() && base.Host == "", "-base is a URL such as https://oapi.dingtalk.com")
	return errors.Join(errs...)
}

// real reports whether the upstream is not the fake.
func (c *config) real() bool { return c.base != "" }

// perSecond is what the edition allows per app and API.
func (c *config) perSecond() int { return editions[c.edition].PerSecond }

// account says whose limits count.
func (c *config) account() account {
	a := account{App: c.key, Egress: "here", Edition: editions[c.edition], Jitter: c.jitter}
	if h := host(c.base); !strings.HasSuffix(h, ".dingtalk.com") {
		a.Host, a.Ban = h, c.ban
	}
	return a
}

// host is the host of a URL, as patterns have it.
func host(u string) string {
	parsed, err := url.Parse(u)
	if err != nil {
		return "" // check has told
	}
	return parsed.Host
}
