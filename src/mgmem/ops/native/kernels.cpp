// The C interface: every function takes the numbers of the call and an array of pointers, and
// returns 0, or 1 where memory ran out.
#include <new>

#include "lstm_backward.h"

namespace {

// Hands out the pointers in the order in which Python put them in.
struct Pointers {
    void* const* next;
    template <class T>
    T take(long count) {
        void* const* here = next;
        next += count;
        return (T)here;
    }
    const bool* flags() { return (const bool*)*next++; }
};

template <class F>
int guarded(F&& body) {
    try {
        body();
        return 0;
    } catch (const std::bad_alloc&) {
        return 1;
    }
}

using In = const float* const*;
using Out = float* const*;

}  // namespace

extern "C" {

// From now on, calls share the threads of the OpenMP library whose GOMP_parallel this is.
void mg_use_openmp(void* parallel) {
    mg::openmp().parallel = (mg::OpenMP::Parallel)parallel;
    mg::openmp().process = getpid();
}

// inputs, weights, biases, outputs
int mg_conv_forward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        Pointers p{pointers};
        mg::ConvForward c;
        c.inputs = p.take<In>(call.inputs);
        c.weights = p.take<In>(call.outputs);
        c.biases = p.take<In>(call.outputs);
        c.outputs = p.take<Out>(call.outputs);
        mg::conv_forward(call, c);
    });
}

// inputs, weights, outputs, their gradients; gradients of inputs, weights, biases
int mg_conv_backward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        Pointers p{pointers};
        mg::ConvBackward c;
        c.inputs = p.take<In>(call.inputs);
        c.weights = p.take<In>(call.outputs);
        c.outputs = p.take<In>(call.outputs);
        c.grads = p.take<In>(call.outputs);
        c.d_inputs = p.take<Out>(call.inputs);
        c.d_weights = p.take<Out>(call.outputs);
        c.d_biases = p.take<Out>(call.outputs);
        mg::conv_backward(call, c);
    });
}

// reset, active; inputs, hidden, cell, input and recurrent weights, biases, peepholes; outputs,
// last hidden, last cell, saved
int mg_lstm_forward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        Pointers p{pointers};
        mg::LSTMForward c;
        c.reset = p.flags(), c.active = p.flags();
        c.inputs = p.take<In>(call.inputs);
        for (In* field : {&c.hidden, &c.cell, &c.w_in, &c.w_rec, &c.bias, &c.peephole})
            *field = p.take<In>(call.outputs);
        for (Out* field : {&c.outputs, &c.last_hidden, &c.last_cell, &c.saved})
            *field = p.take<Out>(call.outputs);
        if (!(call.flags & mg::WITH_PEEPHOLE)) c.peephole = nullptr;
        mg::lstm_forward(call, c);
    });
}

// reset, active; inputs, hidden, cell, input and recurrent weights, peepholes; outputs, saved;
// gradients of outputs, last hidden, last cell; then those of inputs, hidden, cell, input and
// recurrent weights, biases, peepholes
int mg_lstm_backward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        Pointers p{pointers};
        mg::LSTMBackward c;
        c.reset = p.flags(), c.active = p.flags();
        c.inputs = p.take<In>(call.inputs);
        for (In* field : {&c.hidden, &c.cell, &c.w_in, &c.w_rec, &c.peephole, &c.outputs, &c.saved,
                          &c.grads, &c.grads_hidden, &c.grads_cell})
            *field = p.take<In>(call.outputs);
        c.d_inputs = p.take<Out>(call.inputs);
        for (Out* field :
             {&c.d_hidden, &c.d_cell, &c.d_w_in, &c.d_w_rec, &c.d_bias, &c.d_peephole})
            *field = p.take<Out>(call.outputs);
        if (!(call.flags & mg::WITH_PEEPHOLE)) c.peephole = nullptr;
        mg::lstm_backward(call, c);
    });
}

}  // extern "C"
