package asynqthrottle_test

import (
	"context"
	"log"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/adapters/asynqthrottle"
	"github.com/fleetthrottle/throttle/redisstore"
)

// All workers together call the API of a shop at most twice a second. A task that would have to wait is put aside.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	limiters, err := throttle.NewLimiters(throttle.Config{
		Store:    redisstore.New(client, redisstore.Options{}),
		Policies: []throttle.Policy{{Name: "shop", Limit: throttle.PerSecond(2)}},
	})
	if err != nil {
		log.Fatal(err)
	}
	gate, err := asynqthrottle.New(limiters, client, asynqthrottle.Options{
		Demands: func(*asynq.Task) []throttle.Demand { return []throttle.Demand{{Policy: "shop"}} },
	})
	if err != nil {
		log.Fatal(err)
	}

	mux := asynq.NewServeMux()
	mux.Use(gate.Middleware)
	mux.HandleFunc("order", func(context.Context, *asynq.Task) error { return nil }) // calls the shop
	server := asynq.NewServer(asynq.RedisClientOpt{Addr: "localhost:6379"}, gate.Config(asynq.Config{Concurrency: 10}))
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}
