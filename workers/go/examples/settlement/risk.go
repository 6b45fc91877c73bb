package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"sagad.dev/go/examples/internal/bankpb"
	"sagad.dev/go/examples/internal/riskpb"
	"sagad.dev/go/worker"
)

const riskTimeout = 3 * time.Second // nearly four times its P99

// risk tells the third party, which keeps no keys: a call is never made when its lease is over.
type risk struct{ client riskpb.RiskServiceClient }

// meaning is what a failed call says. Any other error goes to the SDK: RETRY if nothing was sent, else
// UNKNOWN.
func meaning(err error) error {
	if status.Code(err) == codes.InvalidArgument {
		return worker.Reject("INVALID_ARGUMENT", status.Convert(err).Message())
	}
	return err
}

func (r *risk) notify(ctx context.Context, task *worker.Task, payment *bankpb.Payment) (*bankpb.RiskCase, error) {
	ctx, cancel := context.WithTimeout(ctx, riskTimeout)
	defer cancel()
	if !task.StillMine() {
		return nil, worker.Retry("TOO_LATE", "the lease was over before the call", 0)
	}
	reply, err := r.client.Notify(ctx, &riskpb.NotifyRequest{IdempotencyKey: task.IdempotencyKey,
		SettlementId: payment.PaymentId, Account: payment.Account, AmountCents: payment.AmountCents,
		Behaviour: payment.Risk})
	if err != nil {
		return nil, meaning(err)
	}
	riskCase := &bankpb.RiskCase{Reference: reply.Reference}
	switch reply.Verdict {
	case riskpb.NotifyReply_VERDICT_ACCEPTED:
		return riskCase, nil
	case riskpb.NotifyReply_VERDICT_ALREADY_EXISTS:
		return riskCase, worker.AlreadyDone(reply.IdempotencyKey == task.IdempotencyKey)
	case riskpb.NotifyReply_VERDICT_REFUSED:
		return nil, worker.Reject("REFUSED", reply.Message)
	case riskpb.NotifyReply_VERDICT_TRY_LATER:
		return nil, worker.Retry("TRY_LATER", reply.Message, 0)
	}
	return nil, worker.Unknown("UNKNOWN_VERDICT", fmt.Sprintf("risk answered %v", reply.Verdict))
}

func (r *risk) withdraw(ctx context.Context, task *worker.Task, payment *bankpb.Payment) (*emptypb.Empty, error) {
	ctx, cancel := context.WithTimeout(ctx, riskTimeout)
	defer cancel()
	if !task.StillMine() {
		return nil, worker.Retry("TOO_LATE", "the lease was over before the call", 0)
	}
	_, err := r.client.Withdraw(ctx, &riskpb.WithdrawRequest{IdempotencyKey: task.IdempotencyKey,
		SettlementId: payment.PaymentId})
	if err != nil {
		return nil, meaning(err)
	}
	return &emptypb.Empty{}, nil
}
