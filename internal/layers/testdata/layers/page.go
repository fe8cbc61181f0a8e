package layers

type page []sentence
