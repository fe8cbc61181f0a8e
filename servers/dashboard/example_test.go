package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/memstore"
	"github.com/fleetthrottle/throttle/redisstore/fleet"
	"github.com/fleetthrottle/throttle/servers/dashboard"
)

// One program shows its own budgets, below a path of its own server.
func ExampleNewProcess() {
	watched := dashboard.NewProcess(memstore.New())
	transport, err := throttle.New(throttle.Config{
		Store:    watched,
		Observe:  watched.Observe,
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: throttle.PerSecond(20)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: transport}
	_ = client // calls of api.example.com

	page, err := dashboard.New(dashboard.Config{Source: watched, Token: os.Getenv("DASHBOARD_TOKEN"), Local: true, Title: "Orders"})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle("/throttle/", http.StripPrefix("/throttle", page))
	server := httptest.NewServer(mux)
	defer server.Close()
	resp, err := http.Get(server.URL + "/throttle/")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status, resp.Header.Get("Content-Type"))
	// Output: 200 OK text/html; charset=utf-8
}

// A fleet's page behind the login of a program's server. Operators of the program may look; to pause they need
// the token, too.
func ExampleFleet() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	all, err := fleet.New(client, fleet.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	page, err := dashboard.New(dashboard.Config{
		Source: dashboard.Fleet(all),
		Token:  os.Getenv("DASHBOARD_TOKEN"),
		Login: func(r *http.Request) (user string, ok bool) {
			user, password, _ := r.BasicAuth()
			return user, isOperator(user, password)
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("/throttle/", http.StripPrefix("/throttle", page))
}

// isOperator stands for what a program knows of its users.
func isOperator(user, password string) bool { return user != "" && password != "" }
