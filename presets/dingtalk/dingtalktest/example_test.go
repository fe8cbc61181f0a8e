package dingtalktest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/presets/dingtalk"
	"github.com/fleetthrottle/throttle/presets/dingtalk/dingtalktest"
)

// A program that sends messages by a robot, and what DingTalk would say to it.
func Example() {
	ding := dingtalktest.New(dingtalktest.Options{})
	client := &http.Client{Transport: throttle.Must(throttle.New(throttle.Config{
		Store:    memstore.New(),
		Policies: dingtalk.Policies(dingtalk.Options{}),
		Base:     ding,
	}))}
	for range 20 {
		resp, err := client.Post("https://oapi.dingtalk.com/robot/send?access_token=robot", "application/json",
			strings.NewReader(`{"msgtype":"text","text":{"content":"hello"}}`))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	fmt.Println("most in a minute:", ding.Most("/robot/send", time.Minute))
	fmt.Println("refused:", len(ding.Refusals()), "banned:", ding.Bans())
	// Output:
	// most in a minute: 20
	// refused: 0 banned: 0
}

// A program that takes a URL calls a Server over the network.
func ExampleNew_url() {
	ding := dingtalktest.New(dingtalktest.Options{IPLimit: 2})
	server := httptest.NewServer(ding)
	defer server.Close()
	for range 3 { // the third call bans the address
		resp, err := http.Get(server.URL + "/gettoken?appkey=dingabc&appsecret=secret")
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
	}
	fmt.Println(ding.Refusals())
	// Output: map[banned:1]
}
