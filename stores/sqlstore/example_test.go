package sqlstore_test

import (
	"database/sql"
	"log"
	"net/http"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/fleetthrottle/throttle"
	"github.com/fleetthrottle/throttle/store"
	"github.com/fleetthrottle/throttle/stores/sqlstore"
)

// All programs that use the table share 20 requests a second.
func Example() {
	db, err := sql.Open("mysql", "throttle:secret@tcp(db.example.com:3306)/app?multiStatements=true")
	if err != nil {
		log.Fatal(err)
	}
	budgets, err := sqlstore.New(db, sqlstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	transport, err := throttle.New(throttle.Config{
		Store:    budgets,
		Policies: []throttle.Policy{{Name: "api", Match: "api.example.com/", Limit: store.PerSecond(20)}},
		MaxWait:  time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	client := &http.Client{Transport: transport}
	_, _ = client.Get("https://api.example.com/users")
}
