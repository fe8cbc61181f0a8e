package dingtalk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/feedback"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/retry"
)

// A program that sends messages has rows of its own below the preset's: for what DingTalk
// has published no number for, and for what it drops in silence.
func messagePolicies() []throttle.Policy {
	const notices = "POST *.dingtalk.com/topapi/message/corpconversation/asyncsend_v2"
	return append(
		dingtalk.Policies(dingtalk.Options{App: "ding-client-id", Address: "prod-nat"}),
		throttle.Policy{
			Name: "replies", Match: "POST *.dingtalk.com/robot/sendBySession",
			Key: throttle.Query("session"), Limit: throttle.PerMinute(20),
			Penalty: feedback.Codes{
				Fields: []string{"errcode"},
				Lasts:  map[string]time.Duration{"130101": 10 * time.Minute, "410100": 10 * time.Minute, "660026": 10 * time.Minute},
			}.Penalty,
		},
		throttle.Policy{Name: "notices", Match: notices, Limit: throttle.PerMinute(5_000), Cost: receivers},
	)
}

// receivers is how many people a work notice is for; of a department's, or everybody's, the
// most that it can be.
func receivers(r *http.Request) int {
	const most = 5_000
	if r.GetBody == nil {
		return most
	}
	body, err := r.GetBody()
	if err != nil {
		return most
	}
	defer body.Close()
	var notice struct {
		Users       string `json:"userid_list"`
		Departments string `json:"dept_id_list"`
		Everybody   bool   `json:"to_all_user"`
	}
	if json.NewDecoder(body).Decode(&notice) != nil || notice.Departments != "" || notice.Everybody {
		return most
	}
	return strings.Count(notice.Users, ",") + 1
}

// mayGet returns those of the users who have not had 500 work notices within 24 hours.
// The others would get nothing, and DingTalk would not say so.
func mayGet(ctx context.Context, day *throttle.Limiter, users []string) (some []string, err error) {
	for _, user := range users {
		switch _, err := day.TryAcquire(ctx, user, 1); {
		case err == nil:
			some = append(some, user)
		case !errors.Is(err, throttle.ErrLimited):
			return nil, err
		}
	}
	return some, nil
}

// answers stand for DingTalk, which takes every message.
type answers struct{}

func (answers) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(`{"errcode":0,"errmsg":"ok"}`))}, nil
}

func Example_messages() {
	store := memstore.New() // redisstore.New(client, nil) for a fleet
	transport, err := throttle.New(throttle.Config{Store: store, Policies: messagePolicies(), Base: answers{}, MaxWait: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	day, err := throttle.NewLimiter(store, throttle.Policy{Name: "notices of a person", Limit: throttle.SlidingWindow(500, 24*time.Hour)})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := retry.NewClient(transport).StandardClient()
	post := func(path, body string) {
		resp, err := client.Post("https://oapi.dingtalk.com"+path, "application/json", strings.NewReader(body))
		if limited, ok := errors.AsType[*throttle.LimitError](err); ok {
			fmt.Println(limited.Policy, "has no room") // the whole text says for how long
			return
		}
		if err != nil {
			fmt.Println(errors.Unwrap(err))
			return
		}

		resp.Body.Close()
	}
	for range 21 {
		post("/robot/sendBySession?session=1", `{"msgtype":"text","text":{"content":"hello"}}`)
	}

	users, err := mayGet(context.Background(), day, []string{"ada", "bob"})
	fmt.Println(users, err)
	const notices = "/topapi/message/corpconversation/asyncsend_v2?access_token=t"
	post(notices, `{"agent_id":1,"userid_list":"`+strings.Join(users, ",")+`","msg":{"msgtype":"text","text":{"content":"hello"}}}`)
	post(notices, `{"agent_id":1,"to_all_user":true,"msg":{"msgtype":"text","text":{"content":"hello"}}}`)
	// Output:
	// replies has no room
	// [ada bob] <nil>
	// notices has no room
}
