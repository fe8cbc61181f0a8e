package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/internal/redistest"
	"github.com/fleetthrottle/throttle/internal/soak"
	"github.com/fleetthrottle/throttle/presets/anthropic"
	"github.com/fleetthrottle/throttle/presets/azureopenai"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/discord"
	"github.com/fleetthrottle/throttle/presets/feishu"
	"github.com/fleetthrottle/throttle/presets/github"
	"github.com/fleetthrottle/throttle/presets/gitlab"
	"github.com/fleetthrottle/throttle/presets/hubspot"
	"github.com/fleetthrottle/throttle/presets/jira"
	"github.com/fleetthrottle/throttle/presets/notion"
	"github.com/fleetthrottle/throttle/presets/openai"
	"github.com/fleetthrottle/throttle/presets/riot"
	"github.com/fleetthrottle/throttle/presets/salesforce"
	"github.com/fleetthrottle/throttle/presets/shopify"
	"github.com/fleetthrottle/throttle/presets/slack"
	"github.com/fleetthrottle/throttle/presets/spapi"
	"github.com/fleetthrottle/throttle/presets/stripe"
	"github.com/fleetthrottle/throttle/presets/wechat"
	"github.com/fleetthrottle/throttle/presets/wecom"
	"github.com/fleetthrottle/throttle/redisstore"
)

// presetRows are the rows of all presets, with what their accounts buy.
var presetRows = map[string][]throttle.Policy{
	"anthropic":   anthropic.Policies(anthropic.Options{}),
	"azureopenai": azureopenai.Policies(azureopenai.Options{}),
	"binance":     binance.Policies(binance.Options{}),
	"dingtalk":    dingtalk.Policies(dingtalk.Options{Edition: dingtalk.Professional, ISV: "vendor"}),
	"discord":     discord.Policies(discord.Options{}),
	"feishu":      feishu.Policies(feishu.Options{PerMonth: feishu.BasicPerMonth}),
	"github":      github.Policies(github.Options{}),
	"gitlab":      gitlab.Policies(gitlab.Options{}),
	"hubspot":     hubspot.Policies(hubspot.Options{}),
	"jira":        jira.Policies(jira.Options{Quota: jira.Tier2(300), PerTenant: true}),
	"notion":      notion.Policies(notion.Options{}),
	"openai":      openai.Policies(openai.Options{Requests: 500, Tokens: 30_000}),
	"riot":        riot.Policies(riot.Options{}),
	"salesforce":  salesforce.Policies(salesforce.Options{PerDay: 145_000}),
	"shopify":     shopify.Policies(shopify.Options{}),
	"slack":       slack.Policies(slack.Options{}),
	"spapi":       spapi.Policies(spapi.Options{}),
	"stripe":      stripe.Policies(stripe.Options{}),
	"wechat":      wechat.Policies(wechat.Options{}),
	"wecom":       wecom.Policies(wecom.Options{Accounts: 500}),
}

// TestRights_OfFullRows: the user of docs/redis.md suffices while the rows of every preset
// fill, and are appended to, joined and written anew.
func TestRights_OfFullRows(t *testing.T) {
	server := redistest.Single(t)
	rights := redistest.Rights(t, rightsPage, "throttle")
	fillPresets(t, redis.NewClient(server.User(t, "throttle", rights)), server)
}

// TestRights_OfFullRowsInACluster is the same for three masters.
func TestRights_OfFullRowsInACluster(t *testing.T) {
	servers := redistest.Cluster(t)
	o := &redis.ClusterOptions{Addrs: servers.Addrs}
	rights := append(redistest.Rights(t, rightsPage, "throttle"), rightsBeside(t, "NewClusterClient")...)
	for _, s := range servers.Servers {
		user := s.User(t, "throttle", rights)
		o.Username, o.Password = user.Username, user.Password
	}
	fillPresets(t, redis.NewClusterClient(o), servers.Servers...)
}

// fillPresets fills the rows of all presets through a client. No server may deny it anything,
// and the client may print nothing. The test runs alone, because all clients print in one place.
func fillPresets(t *testing.T, client redis.UniversalClient, servers ...*redistest.Server) {
	t.Helper()
	defer client.Close()
	printed := listens()
	dirs, err := os.ReadDir("../presets")
	require.NoError(t, err)
	require.Len(t, presetRows, len(dirs)-1, "a preset without rows here")

	require.NoError(t, client.Ping(t.Context()).Err())
	full := make(map[string]bool) // limits whose rows were full
	for preset, rows := range presetRows {
		synctest.Test(t, func(t *testing.T) {
			s := atRest(t, redisstore.NewAt(client, nil, bubbleClock))
			charges := chargesOf(t, preset, rows)
			ask(t, s, booking(charges...)) // as a program asks: all at once
			for _, c := range charges {
				if text := c.Limit.String(); !full[text] || preset == "dingtalk" {
					full[text] = true
					fill(t, s, c, soak.Most(600, 60))
				}
			}
		})
	}
	for _, s := range servers {
		require.Empty(t, denials(t, s.Client(t)))
	}
	require.Empty(t, printed())
}

// fill starts so often under one charge that its row is long, as fast as the limit allows or as
// its row can tell starts apart, and does then what can be done with a row.
func fill(t *testing.T, s *redisstore.Store, c throttle.Charge, many int) {
	if c.Limit.Kind() == throttle.KindConcurrency {
		many = 2
	}
	var last throttle.Grant
	k := bookingFor(0, c)
	for range many {
		if g := ask(t, s, k); g.OK {
			last = g
		}
		time.Sleep(c.Limit.Per()/time.Duration(max(1, min(c.Limit.N(), 128))) + time.Microsecond)
	}
	require.NoError(t, s.Settle(t.Context(), k, last, []int{2}))
	require.NoError(t, s.Reconcile(t.Context(), c, throttle.Quota{Left: 1, Reset: time.Minute}))
	patient := booking(c)
	g := ask(t, s, patient)
	status(t, s, c)
	s.Cancel(patient, g)
	s.Release(k, last)
	_, _, err := s.Refuse(t.Context(), c, throttle.Refusal{Length: time.Second})
	require.NoError(t, err)
	ask(t, s, patient)
	require.NoError(t, s.Resume(t.Context(), c))
	ask(t, s, k)
}

// chargesOf returns a charge for each row of a preset.
func chargesOf(t *testing.T, preset string, rows []throttle.Policy) (all []throttle.Charge) {
	for _, p := range rows {
		c := charge(p.Name, p.Limit)
		c.Budget.Group, c.Jitter, c.Shadow, c.Adaptive = preset, p.Jitter, p.Shadow, p.Adaptive
		all = append(all, c)
	}
	return all
}

// go-redis prints what all clients of the program meet in one place, which nobody may change while
// clients run.
var prints printer

func init() { redis.SetLogger(&prints) }

// listens returns what go-redis prints of missing rights from now on.
func listens() (printed func() []string) {
	before := len(prints.denied())
	return func() []string { return prints.denied()[before:] }
}

// A printer keeps what go-redis prints of missing rights.
type printer struct {
	mu  sync.Mutex
	all []string
}

// Printf implements the logger of go-redis.
func (p *printer) Printf(_ context.Context, format string, v ...any) {
	if text := fmt.Sprintf(format, v...); strings.Contains(text, "NOPERM") {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.all = append(p.all, text)
	}
}

func (p *printer) denied() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}
