package sdktest

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bwmarrin/discordgo"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/discord"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeDiscord(store throttle.Store, base http.RoundTripper) (*discordgo.Session, error) {
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: discord.Policies(discord.Options{}),
		Base:     base, // leave it out in a program
	}))
	session, err := discordgo.New("Bot token")
	if err != nil {
		return nil, err
	}
	session.Client = retry.NewClient(transport).StandardClient() // the SDK's own gives up after 20 seconds
	session.ShouldRetryOnRateLimit = false
	session.MaxRestRetries = 0
	return session, nil
}

// A bucket of Discord holds 5 messages in 5 seconds for each channel.
const (
	bucketSize = 5
	bucketTime = 5 * time.Second
)

// discordPlatform counts a bot by the second and channels by buckets, whose rest it
// tells with each answer.
func discordPlatform() platform {
	const globally = "bot"
	channel := func(c *call) string { return strings.Split(c.URL.Path, "/")[4] }
	limited := func(global bool) func(*call, time.Duration) reply {
		scope := map[bool]string{true: "global", false: "user"}[global]
		return func(_ *call, left time.Duration) reply {
			h := map[string]string{"Retry-After": seconds(left), "X-RateLimit-Scope": scope}
			if global {
				h["X-RateLimit-Global"] = "true"
			}
			told := math.Ceil(left.Seconds()*1000) / 1000
			return reply{429, h, fmt.Sprintf(`{"message":"You are being rate limited.","retry_after":%.3f,"global":%v}`, told, global)}
		}
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{
				{budget: globally, n: 50, per: time.Second, cost: 1},
				{budget: channel(c), n: bucketSize, per: bucketTime, kind: opened, cost: 1, inside: true},
			}
		},
		scopes: func(c *call) []string { return []string{"address", globally, channel(c)} },
		refusals: []refusal{
			{name: "a route's 429", closes: channel, lasts: 6500 * time.Millisecond, reply: limited(false)},
			{name: "a global 429", closes: always(globally), lasts: 3250 * time.Millisecond, reply: limited(true)},
			{
				name: "Cloudflare", closes: always("address"), lasts: 10 * time.Minute,
				reply: func(_ *call, left time.Duration) reply {
					return reply{429, map[string]string{"Content-Type": "text/html", "Retry-After": seconds(left)}, "<html>error code: 1015</html>"}
				},
			},
		},
		answer: func(c *call) reply {
			var message struct{ Content string }
			if json.Unmarshal(c.body, &message) != nil {
				return reply{status: 400}
			}
			c.do(message.Content)
			b := c.u.budget(channel(c))
			after := time.Until(b.opened.Add(bucketTime)).Seconds()
			return reply{200, map[string]string{
				"X-RateLimit-Bucket": "abcd1234", "X-RateLimit-Limit": "5",
				"X-RateLimit-Remaining": fmt.Sprint(max(0, bucketSize-b.sum)), "X-RateLimit-Reset-After": fmt.Sprintf("%.3f", after),
				"X-RateLimit-Reset": fmt.Sprintf("%.3f", float64(time.Now().UnixMilli())/1000+after),
			}, `{"id":"1","content":"` + message.Content + `"}`}
		},
	}
}

func TestDiscord(t *testing.T) {
	const channels = 4 * programs
	play(t, discordPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		bots := clients(func() *discordgo.Session {
			bot, err := recipeDiscord(store, u.base())
			require.NoError(t, err)
			return bot
		})
		// One program sends to a channel, as shards do. The SDK lets one request of a
		// channel go at a time and holds a mutex meanwhile, for which virtual time does not
		// wait; and what is left of a channel's bucket is known from its answers only, so
		// programs that send to it at the same time may pass it.
		speak := func(first, n int) func(int, int) error {
			return func(_, channel int) error {
				for i := range n {
					text := fmt.Sprintf("message %d in %d", first+i, channel)
					m, err := bots[channel%programs].ChannelMessageSend(fmt.Sprint(100+channel), text)
					if err != nil {
						return err
					}
					require.Equal(t, text, m.Content)
				}
				return nil
			}
		}
		u.calls(0, channels, channels, speak(0, 31))
		u.requireUsed("100", 6*bucketTime)

		u.refuse(25)
		u.calls(0, channels, channels, speak(31, 20))
		for channel := range channels {
			for i := range 51 {
				u.requireOnce(fmt.Sprintf("message %d in %d", i, channel))
			}
		}
	})
}
