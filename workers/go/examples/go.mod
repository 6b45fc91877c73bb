module sagad.dev/go/examples

go 1.26.0

require sagad.dev/go v0.1.0

replace sagad.dev/go => ../
