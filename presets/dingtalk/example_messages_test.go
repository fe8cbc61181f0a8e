package dingtalk_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/retry"
)

// A program that sends messages takes a number of its own for what DingTalk has published no number for:
// replies to a session.
func messagePolicies() []throttle.Policy {
	rows := dingtalk.Policies(dingtalk.Options{App: "ding-client-id", Address: "prod-nat"})
	for i := range rows {
		if rows[i].Name == "dingtalk-session" {
			rows[i].Limit = throttle.PerMinute(20)
		}
	}
	return rows
}

// mayGet returns those of the users who have not had 500 work notices within 24 hours.
// The others would get nothing, and DingTalk would not say so.
func mayGet(ctx context.Context, day *throttle.Limiter, users []string) (some []string, err error) {
	for _, user := range users {
		switch _, err := day.Acquire(throttle.WithMaxWait(ctx, throttle.NoWait), user, 1); {
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
	store := memstore.New() // redisstore.New(client, redisstore.Options{}) for a fleet
	transport, err := throttle.New(throttle.Config{Store: store, Policies: messagePolicies(), Base: answers{}, MaxWait: -1})
	if err != nil {
		fmt.Println(err)
		return
	}
	day, err := throttle.NewLimiter(store, throttle.Policy{Name: "notices of a person", Keyed: true, Limit: throttle.SlidingWindow(500, 24*time.Hour)})
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
	// dingtalk-session has no room
	// [ada bob] <nil>
	// dingtalk-notices has no room
}

// printUnsent prints who got nothing by an answer that is a success, and for how long to wait before the
// message is sent to them again.
func printUnsent(answer io.Reader, now time.Time) error {
	unsent, err := dingtalk.ReadUnsent(answer)
	if err != nil {
		return err // the answer is no success: see errcode
	}
	for _, u := range unsent {
		fmt.Println(u.User, u.Code, "again in", u.Wait(now))
	}
	return nil
}

// Two answers that are a success, although some people got nothing: a robot's messages to people, and the
// result of a work notice.
func ExampleReadUnsent() {
	now := time.Date(2026, 11, 28, 22, 0, 0, 0, time.FixedZone("UTC+8", 8*60*60)) // time.Now()
	for _, body := range []string{                                                // resp.Body
		`{"processQueryKey":"k","invalidStaffIdList":[],"flowControlledStaffIdList":["ada"]}`,
		`{"errcode":0,"send_result":{"read_user_id_list":["eve"],"forbidden_user_id_list":["bob","cid"],
			"forbidden_list":[{"code":"143105","count":500,"userid":"bob"},{"code":"143103","count":1,"userid":"cid"}]}}`,
	} {
		if err := printUnsent(strings.NewReader(body), now); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// ada 0 again in 1m0s
	// bob 143105 again in 2h0m0s
	// cid 143103 again in 1m0s
}
