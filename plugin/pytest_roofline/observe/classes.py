"""The class of work of an operator or a kernel, by its name. A name that no rule knows is `other`."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

# A softmax that is attention's only if its range says so.
SOFTMAX = "softmax"
_ATTENTION = re.compile(r"(?i)(\w*_)?(attention|attn|mha|sdpa)\d*|[\w ]*attention")


@dataclass(frozen=True, slots=True)
class Rule:
    """Names that mean a class.

    Args:
        kind: the class, or `softmax`, on which the range decides.
        inclusive: whether all that happens inside belongs to it too; else what is inside may be known better.
        pattern: of the whole name.
    """

    kind: str
    inclusive: bool
    pattern: re.Pattern[str]


def _rule(kind: str, pattern: str, *, inclusive: bool = False) -> Rule:
    return Rule(kind, inclusive, re.compile(pattern, re.DOTALL))


def _names(words: str) -> str:
    return rf"aten::(_foreach_|_fused_)?({'|'.join(words.split())})(_backward)?_?(\.\w+)?"


# Of operators, of autograd's nodes and of the ranges that torch itself makes; the first that fits decides.
OPERATORS = (
    _rule("communication", r"(c10d|_c10d_functional\w*|symm_mem|fsdp)::.*|record_param_comms|"
          r"(nccl|gloo|mpi|ucc|xccl):.*", inclusive=True),
    # torch puts the range around step and zero_grad.
    _rule("optimizer", r"Optimizer\..*|aten::_?fused_(adam|adamw|sgd|adagrad)_*", inclusive=True),
    # One kernel does both products and the softmax.
    _rule("attention fused",
          r"aten::(_scaled_dot_product_(flash|efficient|cudnn|fused)_attention\w*|_(flash|efficient|cudnn)_attention_\w+|"
          r"_fused_sdp_choice|_triton_\w*attention\w*)|roofline_kernels::flash_\w+|flash_attn(_\d+)?::\w+|xformers\w*::\w+|"
          r"(?!triton_)\w*flex_attention\w*|Flash\w*Attention\w*|FlashAttn\w*|"
          r"_?ScaledDotProduct(Flash|Efficient|Cudnn|Fused)\w*", inclusive=True),
    _rule(SOFTMAX, r"aten::(_?softmax|_?softmax_backward_data|_safe_softmax|_masked_softmax\w*)|SoftmaxBackward\d*",
          inclusive=True),
    # Norms are their statistics, losses the sum over what they are of.
    _rule("reduction",
          r"aten::((native_)?(layer|group|batch|instance|rms)_norm|_fused_(rms|layer)_norm|(cudnn|miopen)_batch_norm)"
          r"(_backward)?|(Native|Fused|Cudnn|Miopen)?(Layer|Rms|RMS|Group|Batch)Norm\w*Backward\d*|"
          r"aten::(cross_entropy_loss|nll_loss\w*|_?log_softmax\w*|(mse|l1|smooth_l1|huber)_loss\w*|kl_div\w*|"
          r"binary_cross_entropy\w*)|(NllLoss|LogSoftmax|MseLoss)\w*Backward\d*", inclusive=True),
    _rule("embedding and gather", r"aten::_?embedding\w*|EmbeddingBackward\d*", inclusive=True),
    # A copy that a product needs is still a copy.
    _rule("matrix product",
          r"aten::(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|addr|ger|linear|linear_backward|matmul|matmul_backward|"
          r"einsum|(_scaled)?(_grouped)?_mm|_int_mm|_addmm_activation|mkldnn_linear\w*|\w*convolution\w*|conv\dd|"
          r"conv_transpose\dd)(\.\w+)?_?|mkl::\w+|mkldnn::_?linear\w*"),
    # Casts of autocast are among them.
    _rule("copy", _names("copy _to_copy to type_as clone contiguous cat _cat concat concatenate stack repeat "
                         "repeat_interleave roll flip pin_memory _pin_memory constant_pad_nd pad")),
    _rule("reduction", _names("sum nansum mean prod max min amax amin aminmax argmax argmin any all var std var_mean "
                              "std_mean norm linalg_vector_norm cumsum cumprod logsumexp topk sort argsort median "
                              "kthvalue count_nonzero histc bincount")),
    _rule("embedding and gather", _names(
        "index index_select index_add index_copy index_fill index_put _index_put_impl _unsafe_index _unsafe_index_put "
        "gather scatter scatter_add scatter_reduce take take_along_dim put masked_select masked_scatter nonzero one_hot"
    )),
    _rule("elementwise", _names(
        "add sub rsub mul div true_divide floor_divide remainder fmod pow exp exp2 expm1 log log2 log10 log1p sqrt "
        "rsqrt neg abs sign sgn sigmoid silu gelu relu leaky_relu elu mish hardtanh hardswish softplus tanh sin cos "
        "tan erf atan2 reciprocal square where masked_fill clamp clamp_min clamp_max maximum minimum eq ne lt gt le ge "
        "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor addcmul addcdiv "
        "lerp fill zero zeros ones full zeros_like ones_like full_like new_zeros tril triu dropout native_dropout "
        "bernoulli threshold glu arange linspace isnan isinf isfinite nan_to_num floor ceil round polar complex rand "
        "randn normal uniform randint scalar_tensor masked_scale"
    ) + r"|aten::_amp_\w+|aten::rotary\w*"),
)  # fmt: skip

# Of kernels that no known operator launched, and of all that communicate.
KERNELS = (
    # Inductor names a kernel after its kind, and then after everything that was fused into it.
    _rule("attention fused", r"triton_tem_fused_\w*flex_attention\w*"),
    _rule("matrix product", r"triton_tem_\w+"),
    _rule("elementwise", r"triton_(poi|for)_\w+"),
    _rule("reduction", r"triton_(per|red|mix|spl)_(?!\w*(?<!log)_softmax)\w+"),
    _rule(SOFTMAX, r"triton_(per|red|mix|spl)_\w+"),
    _rule("communication", r"(?i).*(nccl|rccl|oneccl|msccl|nvshmem|all_?reduce_kernel|multimem).*"),
    _rule("attention fused", r"(?i).*(flash_?(fwd|bwd|attn|attention|mla)|fmha|attn_(fwd|bwd)|mem_eff|sdpa|"
          r"flex_attention|attention_kernel|bwd_kernel_(dk_dv|dq)).*"),
    _rule("optimizer", r"(?i).*(fused_?adamw?|adamw?_(kernel|functor)|FusedOptimizer|LambdaUpdate).*"),
    _rule("matrix product", r"(?i).*(gemm|gemv|cublas|nvjet|cutlass.*(conv|wgrad|dgrad|fprop)|cijk_|xmma|wgmma|splitk|"
          r"implicit_convolve|convolve|winograd|fft2d|ck::.*conv|rocblas|hipblaslt).*"),
    _rule("reduction", r"(?i).*(log_?softmax|nll_loss|cross_entropy|gatherTopK|radixFindKthValues).*"),
    _rule(SOFTMAX, r"(?i).*softmax.*"),
    _rule("embedding and gather", r"(?i).*(embedding|index_?select|indexing|index_(elementwise|put)|gather|scatter).*"),
    # Inside of torch's pointwise kernels too, so before those.
    _rule("copy", r"(?i).*(copy_kernel|catarray|memcpy|memset|transpose|copyBuffer|fillBuffer).*"),
    _rule("reduction", r"(?i).*(reduce_kernel|layer_?norm|rms_?norm|batch_?norm|rowwise|argmax|cumsum|radixsort|"
          r"devicescan|devicereduce|cub::).*"),
    _rule("elementwise", r"(?i).*(elementwise|pointwise|vectorized_|unrolled_|multi_tensor_apply|fillfunctor|"
          r"distribution_|dropout|silu|gelu|sigmoid|triu|tril|arange).*"),
)  # fmt: skip


@functools.cache
def first_rule(rules: tuple[Rule, ...], name: str) -> Rule | None:
    """Return the rule that decides on a name. None if no rule knows it."""
    return next((rule for rule in rules if rule.pattern.fullmatch(name)), None)


def class_of(around: Sequence[str], ranges: tuple[str, ...], kernel: str = "") -> str:
    """Return the class of an operator's own work, or of a kernel."""
    rules = [rule for name in around if (rule := first_rule(OPERATORS, name)) is not None]
    by_name = first_rule(KERNELS, kernel) if kernel else None
    # An optimizer that is spread over ranks communicates.
    if any(rule.kind == "communication" for rule in (*rules, by_name) if rule is not None):
        return "communication"
    inside = in_attention(ranges)
    if inside and "softmax" in ranges[-1].rpartition(".")[2].lower():
        return "attention softmax"
    chosen = next((rule for rule in rules if rule.inclusive), rules[-1] if rules else by_name)
    if chosen is not None and chosen.kind == SOFTMAX:
        # Without any range nothing contradicts attention, which is where a transformer has its softmax.
        return "attention softmax" if inside or not ranges else "reduction"
    return chosen.kind if chosen is not None else "other"


@functools.cache
def in_attention(ranges: tuple[str, ...]) -> bool:
    """Return whether a range is attention, or inside it. One of the names between its dots says so;
    `attention_norm` is none.
    """
    return any(_ATTENTION.fullmatch(part) for name in ranges for part in name.split("."))
