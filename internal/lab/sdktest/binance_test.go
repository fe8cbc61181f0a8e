package sdktest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	binanceapi "github.com/adshao/go-binance/v2"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/binance"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeBinance(store throttle.Store, base http.RoundTripper) *binanceapi.Client {
	const key, secret = "key", "secret"
	transport := throttle.Must(throttle.New(throttle.Config{
		MaxWait:  2 * time.Hour, // a job waits for the end of a ban, a user for seconds
		Store:    store,
		Policies: binance.Policies(binance.Options{Weight: binanceWeight}),
		Base:     binanceSigner{secret, base}, // or http.DefaultTransport in place of base
	}))
	client := binanceapi.NewClient(key, secret)
	client.HTTPClient = retry.NewClient(transport).StandardClient()
	return client
}

// binanceWeight is what the documentation of each call says.
func binanceWeight(r *http.Request) int {
	if throttle.RawPath(r) != "/api/v3/depth" {
		return 1
	}
	switch limit, _ := strconv.Atoi(throttle.Query("limit")(r)); {
	case limit > 1000:
		return 250
	case limit > 500:
		return 50
	case limit > 100:
		return 25
	}
	return 5
}

// A binanceSigner signs again what the SDK has signed before it waited: Binance takes
// a timestamp for 5 seconds.
type binanceSigner struct {
	secret string
	base   http.RoundTripper
}

// RoundTrip sends a signed request with the present time and a new signature, and any other request as it is.
func (s binanceSigner) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if !query.Has("signature") {
		return s.base.RoundTrip(r)
	}
	query.Del("signature")
	query.Set("timestamp", strconv.FormatInt(time.Now().UnixMilli(), 10))
	mac := hmac.New(sha256.New, []byte(s.secret))
	io.WriteString(mac, query.Encode())
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		defer body.Close()
		if _, err := io.Copy(mac, body); err != nil {
			return nil, err
		}
	}
	r = r.Clone(r.Context())
	r.URL.RawQuery = query.Encode() + "&signature=" + hex.EncodeToString(mac.Sum(nil))
	return s.base.RoundTrip(r)
}

// binancePlatform counts the weight of an address by the minute of the clock, and
// takes no order that is not signed or was signed long ago.
func binancePlatform() platform {
	const address = "address"
	weight := func(c *call) int {
		if c.URL.Path == "/api/v3/depth" {
			return 250
		}
		return 1
	}
	until := func(left time.Duration) string {
		end := time.Now().Add(left).UnixMilli() + 1
		return fmt.Sprintf(`{"code":-1003,"msg":"Way too much request weight used; IP banned until %d. Please use WebSocket Streams for live updates to avoid bans."}`, end)
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{{budget: "weight", n: 6000, per: time.Minute, kind: clock, cost: weight(c)}}
		},
		scopes: func(*call) []string { return []string{address} },
		refusals: []refusal{
			{
				name: "429", closes: always(address), lasts: 15 * time.Second,
				reply: func(_ *call, left time.Duration) reply {
					return reply{429, map[string]string{"Retry-After": seconds(left)}, `{"code":-1003,"msg":"Too many requests."}`}
				},
			},
			{
				name: "418", closes: always(address), lasts: 2 * time.Minute,
				reply: func(_ *call, left time.Duration) reply {
					return reply{418, map[string]string{"Retry-After": seconds(left)}, until(left)}
				},
			},
			{
				name: "418, printed", closes: always(address), lasts: time.Hour,
				reply: func(_ *call, left time.Duration) reply { return reply{418, nil, until(left)} },
			},
		},
		answer: func(c *call) reply {
			used := map[string]string{"X-MBX-USED-WEIGHT-1M": fmt.Sprint(c.u.budget("weight").sum)}
			if c.Method == http.MethodGet {
				return reply{200, used, `{"lastUpdateId":1027024,"bids":[["4.0","431.0"]],"asks":[]}`}
			}
			if !signedNow(c) {
				return reply{400, used, `{"code":-1021,"msg":"Timestamp for this request is outside of the recvWindow."}`}
			}
			order, _ := url.ParseQuery(string(c.body))
			c.do(order.Get("newClientOrderId"))
			return reply{200, used, `{"symbol":"BTCUSDT","orderId":28,"clientOrderId":"` + order.Get("newClientOrderId") + `"}`}
		},
	}
}

// signedNow reports whether a request was signed with the secret and in the last five
// seconds.
func signedNow(c *call) bool {
	text, signature, _ := strings.Cut(c.URL.RawQuery, "&signature=")
	mac := hmac.New(sha256.New, []byte("secret"))
	io.WriteString(mac, text+string(c.body))
	stamp, err := strconv.ParseInt(c.URL.Query().Get("timestamp"), 10, 64)
	return err == nil && hex.EncodeToString(mac.Sum(nil)) == signature && time.Since(time.UnixMilli(stamp)) <= 5*time.Second
}

func order(t *testing.T, client *binanceapi.Client, id string) error {
	made, err := client.NewCreateOrderService().Symbol("BTCUSDT").Side(binanceapi.SideTypeBuy).
		Type(binanceapi.OrderTypeLimit).TimeInForce(binanceapi.TimeInForceTypeGTC).
		Quantity("1").Price("100").NewClientOrderID(id).Do(t.Context())
	if err == nil {
		require.Equal(t, id, made.ClientOrderID)
	}
	return err
}

func TestBinance(t *testing.T) {
	const workers = 12
	play(t, binancePlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		var bots []*binanceapi.Client // one for each worker: the SDK writes UsedWeight without a lock
		for range workers {
			bots = append(bots, recipeBinance(store, u.base()))
		}
		trade := func(w, i int) error {
			if i%2 == 0 {
				return order(t, bots[w], fmt.Sprint("order-", i))
			}
			depth, err := bots[w].NewDepthService().Symbol("BTCUSDT").Limit(5000).Do(t.Context())
			if err == nil {
				require.Len(t, depth.Bids, 1)
			}
			return err
		}
		u.calls(0, 240, workers, trade)
		u.requireUsed("weight", 5*time.Minute)

		u.refuse(40)
		u.calls(240, 300, workers, trade)
		for i := 0; i < 540; i += 2 {
			u.requireOnce(fmt.Sprint("order-", i))
		}
	})
}

// TestBinanceSignedTooEarly: without the signer Binance takes no order that has
// waited, because the SDK has signed it before.
func TestBinanceSignedTooEarly(t *testing.T) {
	p := binancePlatform()
	p.refusals = nil
	play(t, p, func(t *testing.T, u *upstream) {
		transport := throttle.Must(throttle.New(throttle.Config{
			MaxWait:  throttle.Forever,
			Store:    memstore.New(),
			Policies: []throttle.Policy{{Name: "slow", Match: "/", Limit: throttle.PerMinute(1)}},
			Base:     u.base(),
		}))
		client := binanceapi.NewClient("key", "secret")
		client.HTTPClient = retry.NewClient(transport).StandardClient()
		require.NoError(t, order(t, client, "first"))
		require.ErrorContains(t, order(t, client, "second"), "recvWindow")
	})
}
