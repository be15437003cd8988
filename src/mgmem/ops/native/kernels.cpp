// The C interface: every function takes the numbers of the call and an array of pointers, and
// returns 0, 1 where memory (or threads) ran out, or 2 where an input is infinite in a place where
// only the equations as they are written give the right infinities and NaNs.
#include "lstm_backward.h"
#include "program.h"

namespace {

template <class F>
int guarded(F&& body) {
    try {
        body();
        return 0;
    } catch (const mg::Infinite&) {
        return 2;
    } catch (const std::exception&) {
        return 1;
    }
}

}  // namespace

extern "C" {

// From now on, calls share the threads of the OpenMP library whose GOMP_parallel this is.
void mg_use_openmp(void* parallel) {
    mg::openmp().parallel = (mg::OpenMP::Parallel)parallel;
    mg::openmp().process = getpid();
}

// Pointers as mg::conv_arguments takes them.
int mg_conv_forward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        mg::conv_forward(call, mg::conv_arguments(call, pointers));
    });
}

// inputs, weights, outputs, their gradients; gradients of inputs, weights, biases
int mg_conv_backward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        mg::Pointers p{pointers};
        mg::ConvBackward c;
        c.inputs = p.take<mg::In>(call.inputs);
        c.weights = p.take<mg::In>(call.outputs);
        c.outputs = p.take<mg::In>(call.outputs);
        c.grads = p.take<mg::In>(call.outputs);
        c.d_inputs = p.take<mg::Out>(call.inputs);
        c.d_weights = p.take<mg::Out>(call.outputs);
        c.d_biases = p.take<mg::Out>(call.outputs);
        mg::conv_backward(call, c);
    });
}

// Pointers as mg::lstm_arguments takes them.
int mg_lstm_forward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        mg::lstm_forward(call, mg::lstm_arguments(call, pointers));
    });
}

// reset, active; inputs, hidden, cell, input and recurrent weights, peepholes; outputs, saved;
// gradients of outputs, last hidden, last cell; then those of inputs, hidden, cell, input and
// recurrent weights, biases, peepholes
int mg_lstm_backward(const int64_t* meta, void* const* pointers) {
    return guarded([&] {
        mg::Call call(meta);
        mg::Pointers p{pointers};
        mg::LSTMBackward c;
        c.reset = p.flags(), c.active = p.flags();
        c.inputs = p.take<mg::In>(call.inputs);
        for (mg::In* field : {&c.hidden, &c.cell, &c.w_in, &c.w_rec, &c.peephole, &c.outputs, &c.saved,
                          &c.grads, &c.grads_hidden, &c.grads_cell})
            *field = p.take<mg::In>(call.outputs);
        c.d_inputs = p.take<mg::Out>(call.inputs);
        for (mg::Out* field :
             {&c.d_hidden, &c.d_cell, &c.d_w_in, &c.d_w_rec, &c.d_bias, &c.d_peephole})
            *field = p.take<mg::Out>(call.outputs);
        if (!(call.flags & mg::WITH_PEEPHOLE)) c.peephole = nullptr;
        mg::lstm_backward(call, c);
    });
}

// A program as mg::Program reads it, or null where memory ran out; then to run and to drop it.
void* mg_program_new(const int64_t* numbers) {
    mg::Program* program = nullptr;
    guarded([&] { program = new mg::Program(numbers); });
    return program;
}

int mg_program_run(void* program, void* const* tensors) {
    return guarded([&] { ((mg::Program*)program)->run(tensors); });
}

void mg_program_free(void* program) { delete (mg::Program*)program; }

}  // extern "C"
