package downstream

import "fmt"

// An Order is a row of the API.
type Order struct {
	ID       int    `json:"id"`
	Customer string `json:"customer"`
	Cents    int    `json:"cents"`
}

// A Shipment is a row of the database.
type Shipment struct {
	ID      int    `json:"id"`
	Carrier string `json:"carrier"`
	Grams   int    `json:"grams"`
}

// Statement is the only one that the database knows.
const Statement = "SELECT id, carrier, grams FROM shipments WHERE id BETWEEN ? AND ? ORDER BY id"

// A query is what the driver sends to the database.
type query struct {
	Statement string `json:"statement"`
	IDs       []int  `json:"ids"`
}

// ordersOf returns the orders whose ids lie from first to last, as far as there are such ids.
func ordersOf(first, last int) (rows []Order) {
	for id := first; id <= last; id++ {
		if exists(id) {
			rows = append(rows, Order{id, fmt.Sprintf("customer %d", id*7919%1000), 100 + id*31%9900})
		}
	}
	return rows
}

// shipmentsOf returns the shipments whose ids lie from first to last, as far as there are such ids.
func shipmentsOf(first, last int) (rows []Shipment) {
	for id := first; id <= last; id++ {
		if exists(id) {
			rows = append(rows, Shipment{id, []string{"by road", "by rail", "by air"}[id%3], 50 + id*17%20000})
		}
	}
	return rows
}

// exists reports whether a row was never deleted. Of real tables some ids are gone, and of a
// whole page all may be.
func exists(id int) bool { return id%7 != 0 && (id <= 500 || id > 600) }
