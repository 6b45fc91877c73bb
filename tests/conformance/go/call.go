package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"sagad.dev/go/worker"
)

// call calls as any handler would, by the usual clients, and answers their error.
func call(ctx context.Context, s *script) error {
	address := fmt.Sprintf("127.0.0.1:%d", s.Port)
	switch s.Client {
	case "http":
		return post(ctx, "http://"+address+"/effect")
	case "dns":
		return post(ctx, "http://name.invalid/effect")
	case "grpc":
		return ask(ctx, address)
	case "postgresql":
		return execute(ctx, "pgx", "postgres://nobody@"+address+"/none?sslmode=disable")
	case "mysql":
		return execute(ctx, "mysql", "nobody@tcp("+address+")/none")
	}
	return worker.Reject("NO_SCRIPT", fmt.Sprintf("client: %q is unknown", s.Client))
}

func post(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("amount=1"))
	if err != nil {
		return err
	}
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	return fmt.Errorf("it answered %s", response.Status)
}

func ask(ctx context.Context, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), worker.ProveSends())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "effect"})
	return err
}

func execute(ctx context.Context, driver, dsn string) error {
	db, err := sql.Open(driver, dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, "UPDATE account SET balance = 0")
	return err
}
