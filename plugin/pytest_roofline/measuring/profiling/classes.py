"""Which class of work an activity is: rules as data, each with its reason, the first that fits decides.

A range says most (a kernel of the optimizer is the optimizer's, whatever it does), then the operators around a launch,
then the kernel's name. What no rule knows is `other`, and is listed by name.
"""

import re
from dataclasses import dataclass
from enum import IntEnum

from ...core.profiles import ActivityClass
from .nesting import Node

# A softmax that is attention's only if its range says so.
SOFTMAX = "softmax"


@dataclass(frozen=True, slots=True)
class Rule:
    """Names that mean a class.

    Args:
        pattern: of the whole name.
        kind: the class, or `softmax`, on which the range decides.
        whole: whether all that happens inside belongs to it too; else what is inside may be known better.
        why: the reason.
    """

    pattern: re.Pattern[str]
    kind: str
    why: str
    whole: bool = False


def _rule(kind: str, pattern: str, why: str, *, whole: bool = False) -> Rule:
    return Rule(re.compile(pattern, re.DOTALL), kind, why, whole)


# A range of attention, by one of the names between its dots; `attention_norm` is none.
_ATTENTION = re.compile(r"(?i)(\w*_)?(attention|attn|mha|sdpa)\d*|[\w ]*attention")
_SOFTMAX_PART = re.compile(r"(?i).*softmax.*")

ANNOTATIONS = (
    _rule("optimizer", r"Optimizer\..*", "torch puts this range around step and zero_grad", whole=True),
    _rule("communication", r"(nccl|gloo|mpi|ucc|xccl):.*", "torch.distributed names its collectives so", whole=True),
)

_IN_PLACE = r"_?(\.\w+)?"
_POINTWISE = (
    "add sub rsub mul div true_divide floor_divide remainder fmod pow exp exp2 expm1 log log2 log10 log1p sqrt rsqrt "
    "neg abs sign sgn sigmoid silu gelu relu leaky_relu elu mish hardtanh hardswish softplus tanh sin cos tan erf "
    "atan2 reciprocal square where masked_fill clamp clamp_min clamp_max maximum minimum eq ne lt gt le ge "
    "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor addcmul addcdiv "
    "lerp fill zero zeros ones full zeros_like ones_like full_like new_zeros tril triu dropout native_dropout "
    "bernoulli threshold glu arange linspace isnan isinf isfinite nan_to_num floor ceil round polar complex rand randn "
    "normal uniform randint scalar_tensor masked_scale"
)
_REDUCING = (
    "sum nansum mean prod max min amax amin aminmax argmax argmin any all var std var_mean std_mean norm "
    "linalg_vector_norm cumsum cumprod logsumexp topk sort argsort median kthvalue count_nonzero histc bincount"
)
_GATHERING = (
    "index index_select index_add index_copy index_fill index_put _index_put_impl _unsafe_index _unsafe_index_put "
    "gather scatter scatter_add scatter_reduce take take_along_dim put masked_select masked_scatter nonzero one_hot"
)


def _named(words: str) -> str:
    return f"aten::(_foreach_|_fused_)?({'|'.join(words.split())})(_backward)?{_IN_PLACE}"


OPERATORS = (
    _rule(
        "attention fused",
        r"aten::(_scaled_dot_product_(flash|efficient|cudnn|fused)_attention\w*|_flash_attention_\w+|"
        r"_efficient_attention_\w+|_cudnn_attention_\w+|_scaled_dot_product_attention_cudnn|"
        r"_fused_sdp_choice|_triton_scaled_dot_attention|_triton_multi_head_attention)|"
        r"roofline_kernels::flash_\w+|flash_attn(_\d+)?::\w+|xformers\w*::\w+|\w*flex_attention\w*|"
        r"Flash\w*Attention\w*|FlashAttn\w*|_?ScaledDotProduct(Flash|Efficient|Cudnn|Fused)\w*",
        "one kernel does both products and the softmax",
        whole=True,
    ),
    _rule(SOFTMAX, r"aten::(_?softmax|_?softmax_backward_data|_safe_softmax|_masked_softmax\w*)|SoftmaxBackward\d*",
          "the operator and its gradient", whole=True),
    _rule(
        "reduction",
        r"aten::((native_)?(layer|group|batch|instance|rms)_norm|_fused_(rms|layer)_norm|cudnn_batch_norm|"
        r"miopen_batch_norm)(_backward)?|(Native|Fused|Cudnn|Miopen)?(Layer|Rms|RMS|Group|Batch)Norm\w*Backward\d*",
        "a norm is its statistics; the products around them go with it",
        whole=True,
    ),
    _rule(
        "reduction",
        r"aten::(cross_entropy_loss|nll_loss\w*|_?log_softmax\w*|mse_loss\w*|l1_loss\w*|smooth_l1_loss\w*|"
        r"huber_loss\w*|kl_div\w*|binary_cross_entropy\w*)|(NllLoss|LogSoftmax|MseLoss)\w*Backward\d*",
        "a loss is a sum over what it is of",
        whole=True,
    ),
    _rule("embedding and gather", r"aten::_?embedding\w*|EmbeddingBackward\d*", "rows by index, or added by index",
          whole=True),
    _rule(
        "communication",
        r"(c10d|_c10d_functional|_c10d_functional_autograd|symm_mem|fsdp)::.*|record_param_comms|nccl:.*|gloo:.*",
        "torch.distributed's operators",
        whole=True,
    ),
    _rule(
        "matrix product",
        r"aten::(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|addr|ger|linear|linear_backward|matmul|matmul_backward|"
        r"einsum|_scaled_mm|_scaled_grouped_mm|_grouped_mm|_int_mm|_addmm_activation|mkldnn_linear\w*|"
        r"\w*convolution\w*|conv\dd|conv_transpose\dd)(\.\w+)?_?|mkl::\w+|mkldnn::_?linear\w*",
        "a copy that a product needs is still a copy",
    ),
    _rule(
        "copy",
        r"aten::(copy_?|_to_copy|to|type_as|clone|contiguous|cat|_cat|concat|concatenate|stack|repeat|"
        r"repeat_interleave|roll|flip|pin_memory|_pin_memory|_foreach_copy_|constant_pad_nd|pad)(\.\w+)?",
        "casts of autocast are among them",
    ),
    _rule("reduction", _named(_REDUCING), "many values to few"),
    _rule("embedding and gather", _named(_GATHERING), "reads or writes by index"),
    _rule("elementwise", _named(_POINTWISE), "one value by one; fills too"),
    _rule("elementwise", r"aten::\w*(sigmoid|silu|gelu|tanh|threshold|dropout|glu)_backward|aten::_amp_\w+|"
          r"aten::rotary\w*", "gradients of pointwise functions, and the loss scaler's"),
    _rule("optimizer", r"aten::_?fused_(adam|adamw|sgd|adagrad)_*", "the whole update as one operator", whole=True),
)  # fmt: skip

KERNELS = (
    _rule("communication", r"(?i).*(nccl|rccl|oneccl|msccl|nvshmem|all_?reduce_kernel|multimem).*",
          "libraries of collectives"),
    _rule(
        "attention fused",
        r"(?i).*(flash_?(fwd|bwd|attn|attention|mla)|fmha|attn_(fwd|bwd)|mem_eff|sdpa|flex_attention|"
        r"attention_kernel|bwd_kernel_(dk_dv|dq)|ck_tile.*fmha).*|(forward|d_keys|d_queries|delta)_kernel",
        "the back ends of SDPA, and our own; they do both products and the softmax",
    ),
    _rule("optimizer", r"(?i).*(fused_?adamw?|adamw?_(kernel|functor)|FusedOptimizer|LambdaUpdate).*",
          "fused updates; unfused ones are known by their range"),
    _rule(
        "matrix product",
        r"(?i).*(gemm|gemv|cublas|nvjet|cutlass.*(conv|wgrad|dgrad|fprop)|cijk_|xmma|wgmma|splitk|"
        r"triton_tem_fused_\w*mm|implicit_convolve|convolve|winograd|fft2d|ck::.*conv|rocblas|hipblaslt).*",
        "cuBLAS, cuBLASLt, CUTLASS, rocBLAS, Tensile and Triton's templates",
    ),
    _rule("reduction", r"(?i).*(log_?softmax|nll_loss|cross_entropy).*", "the loss"),
    _rule(SOFTMAX, r"(?i).*softmax.*", "a softmax that is not the loss's"),
    _rule("embedding and gather",
          r"(?i).*(embedding|index_?select|indexing|index_elementwise|gather|scatter|index_put|vectorized_gather).*",
          "reads or writes by index"),
    _rule("copy", r"(?i).*(copy_kernel|catarray|memcpy|memset|transpose|copyBuffer|fillBuffer).*",
          "inside of torch's pointwise kernels too, so before those"),
    _rule("reduction",
          r"(?i).*(reduce_kernel|layer_?norm|rms_?norm|batch_?norm|rowwise|triton_(per|red)_|argmax|cumsum|radixsort|"
          r"devicescan|devicereduce|gatherTopK|cub::).*",
          "norms, sums, sorts; Inductor calls its reductions per and red"),
    _rule("elementwise",
          r"(?i).*(elementwise|pointwise|triton_poi_|vectorized_|unrolled_|multi_tensor_apply|fillfunctor|"
          r"distribution_|dropout|silu|gelu|sigmoid|triu|tril|arange).*",
          "torch's pointwise kernels, and Inductor's"),
)  # fmt: skip


def parts_of(name: str) -> list[str]:
    """The names between the dots of a range."""
    return name.split(".")


def in_attention(ranges: tuple[str, ...]) -> bool:
    """Whether a range is attention, or inside it."""
    return any(_ATTENTION.fullmatch(part) for name in ranges for part in parts_of(name))


def _in_attention_softmax(ranges: tuple[str, ...]) -> bool:
    return in_attention(ranges) and any(_SOFTMAX_PART.fullmatch(part) for part in parts_of(ranges[-1]))


def first_rule(rules: tuple[Rule, ...], name: str) -> Rule | None:
    """The rule that decides on a name; None where none knows it."""
    return next((rule for rule in rules if rule.pattern.fullmatch(name)), None)


class Hold(IntEnum):
    """How much a class of a host event says of what happens in it."""

    INHERITED = 0
    """It has none of its own, but what is around it has."""
    OWN = 1
    """A rule knows it, and may know what is inside better."""
    WHOLE = 2
    """Everything inside belongs to it."""


Known = tuple[str, Hold]
NOTHING: Known = "", Hold.INHERITED


class Classifier:
    """Gives every host event its class, once a name and once an event."""

    def __init__(self, nodes: list[Node]) -> None:
        self._rules: dict[tuple[bool, str], Rule | None] = {}
        self._kernels: dict[str, Rule | None] = {}
        self._known: dict[Node, Known] = {}
        self._attention: dict[tuple[str, ...], tuple[bool, bool]] = {}
        for node in nodes:
            self._known[node] = self._look(node)

    def of_operator(self, node: Node) -> ActivityClass:
        """The class of what an operator does itself."""
        return self._final(self._known[node][0], node.ranges)

    def of_kernel(self, name: str, category: str, node: Node | None) -> ActivityClass:
        """The class of a piece of the device's work, launched inside `node`."""
        kind, hold = self._known[node] if node is not None else NOTHING
        ranges = node.ranges if node is not None else ()
        if name not in self._kernels:
            self._kernels[name] = first_rule(KERNELS, name) if category == "kernel" else None
        rule = self._kernels[name]
        if rule is not None and rule.kind == "communication":
            # An optimizer that is spread over ranks communicates.
            return "communication"
        if hold > Hold.INHERITED:
            return self._final(kind, ranges)
        if category != "kernel":
            return "copy"
        return self._final(rule.kind if rule is not None else kind, ranges)

    def _look(self, node: Node) -> Known:
        """The class of an event as far as its place and name tell."""
        above = self._known[node.parent] if node.parent is not None else NOTHING
        rule = self._rule(node)
        if rule is not None and rule.kind == "communication":
            return rule.kind, Hold.WHOLE
        if above[1] is Hold.WHOLE:
            return above
        if node.event.is_operator and self._places(node.ranges)[1]:
            return "attention softmax", Hold.WHOLE
        if rule is not None and rule.whole:
            return rule.kind, Hold.WHOLE
        # The gradient of a part of a norm is the norm's, as that part was.
        forward = self._known[node.forward] if node.forward is not None else NOTHING
        if forward[1] is Hold.WHOLE:
            return forward
        return (rule.kind, Hold.OWN) if rule is not None else (above[0] or forward[0], Hold.INHERITED)

    def _rule(self, node: Node) -> Rule | None:
        key = node.event.is_operator, node.event.name
        if key not in self._rules:
            name = node.event.name.removeprefix("autograd::engine::evaluate_function: ")
            self._rules[key] = first_rule(OPERATORS if node.event.is_operator else ANNOTATIONS, name)
        return self._rules[key]

    def _places(self, ranges: tuple[str, ...]) -> tuple[bool, bool]:
        """Whether ranges are inside attention, and inside its softmax."""
        if ranges not in self._attention:
            self._attention[ranges] = in_attention(ranges), _in_attention_softmax(ranges)
        return self._attention[ranges]

    def _final(self, kind: str, ranges: tuple[str, ...]) -> ActivityClass:
        if kind == SOFTMAX:
            # Without any range nothing contradicts attention, which is where a transformer has its softmax.
            return "attention softmax" if not ranges or self._places(ranges)[0] else "reduction"
        return kind or "other"  # type: ignore[return-value]
