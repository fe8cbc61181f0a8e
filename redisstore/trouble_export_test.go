package redisstore

// Unheard makes the store take it that there is no word from Redis.
func (s *Store) Unheard() { s.heardAt.Store(0) }
