package sdktest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	robot "github.com/alibabacloud-go/dingtalk/robot_1_0"
	util "github.com/alibabacloud-go/tea-utils/v2/service"
	"github.com/alibabacloud-go/tea/tea"
	"github.com/stretchr/testify/require"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/retry"
)

func recipeDingTalk(store throttle.Store, base http.RoundTripper) *openapi.Config {
	transport := throttle.Must(throttle.New(throttle.Config{
		Store: store,
		Policies: dingtalk.Policies(dingtalk.Options{
			App: "ding-client-id", // if several applications share the store
		}),
		MaxWait: 10 * time.Minute, // the SDK's calls take no context
		Base:    base,             // leave it out in a program
	}))
	return &openapi.Config{ // for NewClient of robot_1_0, oauth2_1_0, and the others
		Protocol:   tea.String("https"), // the SDK's own choice is plain HTTP
		HttpClient: dingtalkClient{retry.NewClient(transport).StandardClient()},
	}
}

// A dingtalkClient sends what the SDK asks for. The transport that the SDK has made is not
// used.
type dingtalkClient struct{ *http.Client }

// Call implements dara.HttpClient.
func (c dingtalkClient) Call(r *http.Request, _ *http.Transport) (*http.Response, error) {
	return c.Do(r)
}

// dingtalkBan is the answer to a banned address. It has no code.
const dingtalkBan = `{"status":1111,"wait":5,"source":"x5","punish":"deny","uuid":"24ce64f68ff5dc054dca012fc3931165"}`

// dingtalkPlatform counts messages of a robot to people by the second.
func dingtalkPlatform() platform {
	const api = "/v1.0/robot/oToMessages/batchSend"
	refused := func(status int, body string) func(*call, time.Duration) reply {
		return func(*call, time.Duration) reply { return reply{status: status, body: body} }
	}
	return platform{
		limits: func(c *call) []limit {
			return []limit{
				{budget: c.URL.Path, n: 20, per: time.Second, cost: 1},
				{budget: "address", n: 10_000, per: 20 * time.Second, cost: 1},
			}
		},
		scopes: func(c *call) []string { return []string{"address", c.URL.Path} },
		refusals: []refusal{
			{name: "QpsLimitForAppkeyAndApi", closes: always(api), lasts: time.Second, reply: refused(403, `{"code":"Forbidden.AccessDenied.QpsLimitForAppkeyAndApi","requestid":"01A08FE7-CD6B-79BB-8B2E-35D8768AD457","message":"qps limit"}`)},
			{name: "the ban", closes: always("address"), lasts: 5 * time.Minute, reply: refused(200, dingtalkBan)},
		},
		answer: func(c *call) reply {
			var message struct{ UserIDs []string }
			if json.Unmarshal(c.body, &message) != nil || len(message.UserIDs) != 1 || c.URL.Path != api ||
				c.Host != "api.dingtalk.com" || c.Header.Get("x-acs-dingtalk-access-token") != "t-token" {
				return reply{status: 400, body: `{"code":"InvalidAuthentication","requestid":"01A08FE7","message":"不合法的access_token"}`}
			}
			c.do(message.UserIDs[0])
			return ok(`{"processQueryKey":"key-` + message.UserIDs[0] + `","flowControlledStaffIdList":[],"invalidStaffIdList":[]}`)
		},
	}
}

func TestDingTalk(t *testing.T) {
	play(t, dingtalkPlatform(), func(t *testing.T, u *upstream) {
		store := memstore.New()
		configs := clients(func() *openapi.Config { return recipeDingTalk(store, u.base()) })
		robots := make([]*robot.Client, 24) // one for each worker: the SDK's client changes itself without a lock
		for w := range robots {
			sdk, err := robot.NewClient(configs[w%programs])
			require.NoError(t, err)
			robots[w] = sdk
		}
		send := func(w, i int) error {
			id := fmt.Sprint("user-", i)
			sent, err := robots[w].BatchSendOTOWithOptions(
				new(robot.BatchSendOTORequest).SetRobotCode("ding-client-id").SetMsgKey("sampleText").
					SetMsgParam(`{"content":"hello"}`).SetUserIds([]*string{&id}),
				new(robot.BatchSendOTOHeaders).SetXAcsDingtalkAccessToken("t-token"),
				new(util.RuntimeOptions),
			)
			if err == nil {
				require.Equal(t, "key-"+id, *sent.Body.ProcessQueryKey)
			}
			return err
		}
		u.calls(0, 1000, len(robots), send)
		u.requireUsed("/v1.0/robot/oToMessages/batchSend", 49*time.Second)

		u.refuse(400)
		u.calls(1000, 1000, len(robots), send)
		for i := range 2000 {
			u.requireOnce(fmt.Sprint("user-", i))
		}
	})
}
