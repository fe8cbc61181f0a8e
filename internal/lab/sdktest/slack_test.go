package sdktest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"testing"
	"time"

	slackapi "github.com/slack-go/slack"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/slack"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeSlack(store throttle.Store, base http.RoundTripper) *slackapi.Client {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait: time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:   store,
		Policies: slack.Policies(slack.Options{
			Methods: map[string]slack.Tier{"users.info": slack.Tier4},
			Channel: slackChannel,
		}),
		Base: base, // leave it out in a program
	}))
	return slackapi.New("xoxb-token", slackapi.OptionHTTPClient(retry.NewClient(transport).StandardClient()))
}

// slackChannel reads the channel from the form that the SDK posts.
func slackChannel(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return ""
	}
	form, _ := url.ParseQuery(string(text))
	return form.Get("channel")
}

// slackPlatform counts methods by the minute and messages by the second and channel.
func slackPlatform() platform {
	form := func(c *call) url.Values {
		v, _ := url.ParseQuery(string(c.body))
		return v
	}
	method := func(c *call) string { return path.Base(c.URL.Path) }
	// A message belongs to its channel, anything else to its method.
	scope := func(c *call) string {
		if m := method(c); m != "chat.postMessage" {
			return m
		}
		return "channel " + form(c).Get("channel")
	}
	return platform{
		limits: func(c *call) []limit {
			if method(c) == "chat.postMessage" {
				return []limit{{budget: scope(c), n: 1, per: time.Second, cost: 1}}
			}
			return []limit{{budget: method(c), n: 100, per: time.Minute, cost: 1}}
		},
		scopes: func(c *call) []string { return []string{scope(c)} },
		refusals: []refusal{
			{
				name: "429", closes: scope, lasts: 30 * time.Second,
				reply: func(_ *call, left time.Duration) reply {
					return reply{429, map[string]string{"Retry-After": seconds(left)}, `{"ok":false,"error":"ratelimited"}`}
				},
			},
			{
				name: "an old method's 200", closes: scope, lasts: time.Minute,
				reply: func(*call, time.Duration) reply { return ok(`{"ok":false,"error":"ratelimited"}`) },
			},
		},
		answer: func(c *call) reply {
			if method(c) == "chat.postMessage" {
				c.do(form(c).Get("text"))
				return ok(`{"ok":true,"channel":"` + form(c).Get("channel") + `","ts":"1405895017.000506"}`)
			}
			return ok(`{"ok":true,"user":{"id":"U1"}}`)
		},
	}
}

func TestSlack(t *testing.T) {
	const channels = 6
	play(t, slackPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		apps := clients(func() *slackapi.Client { return recipeSlack(store, u.base()) })
		post := func(w, i int) error {
			channel, text := fmt.Sprint("C", i%channels), fmt.Sprint("message ", i)
			to, _, err := apps[w%programs].PostMessageContext(t.Context(), channel, slackapi.MsgOptionText(text, false))
			if err == nil {
				require.Equal(t, channel, to)
			}
			return err
		}
		u.calls(0, 180, 12, post)
		u.requireUsed("channel C0", 29*time.Second)

		u.refuse(40)
		u.calls(180, 180, 12, post)
		u.calls(0, 300, 12, func(w, _ int) error {
			user, err := apps[w%programs].GetUserInfoContext(t.Context(), "U1")
			if err == nil {
				require.Equal(t, "U1", user.ID)
			}
			return err
		})
		for i := range 360 {
			u.requireOnce(fmt.Sprint("message ", i))
		}
	})
}
