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
)

// A config is what the flags and the environment say.
type config struct {
	nodes, workers, people int
	edition                string
	redis                  string
	unthrottled            bool
	oapi, api              string // "": the fake
	key, secret            string
	jitter                 time.Duration
	svg                    string
}

// editions says what each edition of DingTalk allows per second, app and API.
var editions = map[string]int{"standard": 20, "professional": 40, "exclusive": 60}

// parse reads the command line. Errors are already told to out.
func parse(args []string, out io.Writer) (config, error) {
	var c config
	var base string
	f := flag.NewFlagSet("dingtalk", flag.ContinueOnError)
	f.SetOutput(out)
	f.IntVar(&c.nodes, "nodes", 4, "nodes in the fleet")
	f.IntVar(&c.workers, "workers", 16, "workers of each node")
	f.IntVar(&c.people, "people", 3000, "people in the fake's company")
	f.StringVar(&c.edition, "edition", "standard", "standard, professional or exclusive: 20, 40 or 60 calls a second")
	f.StringVar(&c.redis, "redis", "", "`URL` of a Redis; the nodes are then processes of their own")
	f.BoolVar(&c.unthrottled, "unthrottled", false, "see what the fake does to a fleet without the library")
	f.StringVar(&base, "base", "", "`URL` for both hosts; defaults to the fake")
	f.StringVar(&c.oapi, "oapi", "", "`URL` of the old host, such as https://oapi.dingtalk.com")
	f.StringVar(&c.api, "api", "", "`URL` of the new host, such as https://api.dingtalk.com")
	f.StringVar(&c.key, "appkey", "", "app key; defaults to $DINGTALK_APP_KEY")
	f.StringVar(&c.secret, "appsecret", "", "app secret; defaults to $DINGTALK_APP_SECRET, where nobody sees it")
	f.DurationVar(&c.jitter, "jitter", throttle.DefaultJitter, "how long a call may be on its way; more on a busy machine or a far network")
	f.StringVar(&c.svg, "svg", "dingtalk.svg", "`file` for the picture; empty for none")
	if err := f.Parse(args); err != nil {
		return c, err
	}
	c.key = cmp.Or(c.key, os.Getenv("DINGTALK_APP_KEY"))
	c.secret = cmp.Or(c.secret, os.Getenv("DINGTALK_APP_SECRET"))
	c.hosts(base)
	if err := c.check(f.NArg()); err != nil {
		fmt.Fprintln(out, "dingtalk:", err)
		return c, err
	}
	return c, nil
}

// hosts fills in the URLs that were not given.
func (c *config) hosts(base string) {
	if c.oapi == "" {
		c.oapi = base
	}
	if c.api == "" {
		c.api = base
	}
	if c.api == "" && c.oapi != "" {
		c.api = "https://api.dingtalk.com"
	}
	c.oapi, c.api = strings.TrimSuffix(c.oapi, "/"), strings.TrimSuffix(c.api, "/")
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
	add(editions[c.edition] == 0, "-edition is standard, professional or exclusive")
	add(c.unthrottled && c.redis != "", "-unthrottled uses no store: leave -redis out")
	add(c.unthrottled && c.real(), "-unthrottled is for the fake only: the real DingTalk would ban this address")
	add(c.api != "" && !c.real(), "-api needs -oapi: the address book is pulled from the old host")
	add(c.real() && (c.key == "" || c.secret == ""), "a real DingTalk needs -appkey and -appsecret, or the environment")
	for _, u := range []string{c.oapi, c.api} {
		parsed, err := url.Parse(u)
		add(err != nil || u != "" && parsed.Host == "", "-base, -oapi and -api are URLs such as https://oapi.dingtalk.com")
	}
	return errors.Join(errs...)
}

// real reports whether the upstream is not the fake.
func (c *config) real() bool { return c.oapi != "" }

// account says whose limits count.
func (c *config) account() account {
	return account{
		App: c.key, Egress: "here", PerSecond: editions[c.edition], Jitter: c.jitter,
		OAPI: host(c.oapi), API: host(c.api), Any: both(host(c.oapi), host(c.api)),
	}
}

// host is the host of a URL, as patterns have it.
func host(u string) string {
	parsed, err := url.Parse(u)
	if err != nil {
		return "" // check has told
	}
	return parsed.Host
}

// both is a pattern for the two hosts. Where it cannot be narrow it is wide:
// too many calls counted for the address are safe, too few are not.
func both(oapi, api string) string {
	const domain = ".dingtalk.com"
	switch {
	case oapi == api:
		return oapi
	case strings.HasSuffix(oapi, domain) && strings.HasSuffix(api, domain):
		return "*" + domain
	}
	return ""
}
