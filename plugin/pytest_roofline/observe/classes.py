"""The class of work of an operator or a kernel, by its name. A name without a rule is `other`."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

# The class of rules for a softmax, of which the ranges around it decide whether it belongs to attention.
SOFTMAX = "softmax"
_ATTENTION = re.compile(r"(?i)(\w*_)?(attention|attn|mha|sdpa)\d*|[\w ]*attention")


@dataclass(frozen=True, slots=True)
class Rule:
    """The names of operators or kernels that belong to a class.

    Args:
        kind: the class, or `softmax`, for which the ranges decide.
        pattern: matches the whole name.
        inclusive: whether all operators inside belong to the class too; otherwise their own names decide.
    """

    kind: str
    pattern: str
    inclusive: bool = False


def _names(words: str) -> str:
    """Return the pattern of some operators of aten, with all their variants."""
    return rf"aten::(_foreach_|_fused_)?({'|'.join(words.split())})(_backward)?_?(\.\w+)?"


# The rules for operators, autograd's nodes and ranges that torch itself makes. The first that matches decides.
OPERATORS = (
    Rule("communication", r"(c10d|_c10d_functional\w*|symm_mem|fsdp)::.*|record_param_comms|"
         r"(nccl|gloo|mpi|ucc|xccl):.*", inclusive=True),
    # torch itself puts this range around step and zero_grad.
    Rule("optimizer", r"Optimizer\..*|aten::_?fused_(adam|adamw|sgd|adagrad)_*", inclusive=True),
    # One kernel does both products and the softmax of attention.
    Rule("attention fused",
         r"aten::(_scaled_dot_product_(flash|efficient|cudnn|fused)_attention\w*|_(flash|efficient|cudnn)_attention_\w+|"
         r"_fused_sdp_choice|_triton_\w*attention\w*)|roofline_kernels::flash_\w+|flash_attn(_\d+)?::\w+|xformers\w*::\w+|"
         r"(?!triton_)\w*flex_attention\w*|Flash\w*Attention\w*|FlashAttn\w*|"
         r"_?ScaledDotProduct(Flash|Efficient|Cudnn|Fused)\w*", inclusive=True),
    Rule(SOFTMAX, r"aten::(_?softmax|_?softmax_backward_data|_safe_softmax|_masked_softmax\w*)|SoftmaxBackward\d*",
         inclusive=True),
    # A norm is mostly its statistics, and a loss the sum over its elements.
    Rule("reduction",
         r"aten::((native_)?(layer|group|batch|instance|rms)_norm|_fused_(rms|layer)_norm|(cudnn|miopen)_batch_norm)"
         r"(_backward)?|(Native|Fused|Cudnn|Miopen)?(Layer|Rms|RMS|Group|Batch)Norm\w*Backward\d*|"
         r"aten::(cross_entropy_loss|nll_loss\w*|_?log_softmax\w*|(mse|l1|smooth_l1|huber)_loss\w*|kl_div\w*|"
         r"binary_cross_entropy\w*)|(NllLoss|LogSoftmax|MseLoss)\w*Backward\d*", inclusive=True),
    Rule("embedding and gather", r"aten::_?embedding\w*|EmbeddingBackward\d*", inclusive=True),
    # Not inclusive: a copy that a product needs is still a copy.
    Rule("matrix product",
         r"aten::(mm|bmm|addmm|baddbmm|addbmm|mv|addmv|dot|vdot|addr|ger|linear|linear_backward|matmul|matmul_backward|"
         r"einsum|(_scaled)?(_grouped)?_mm|_int_mm|_addmm_activation|mkldnn_linear\w*|\w*convolution\w*|conv\dd|"
         r"conv_transpose\dd)(\.\w+)?_?|mkl::\w+|mkldnn::_?linear\w*"),
    # Casts of autocast are among them.
    Rule("copy", _names("copy _to_copy to type_as clone contiguous cat _cat concat concatenate stack repeat "
                        "repeat_interleave roll flip pin_memory _pin_memory constant_pad_nd pad")),
    Rule("reduction", _names("sum nansum mean prod max min amax amin aminmax argmax argmin any all var std var_mean "
                             "std_mean norm linalg_vector_norm cumsum cumprod logsumexp topk sort argsort median "
                             "kthvalue count_nonzero histc bincount")),
    Rule("embedding and gather", _names(
        "index index_select index_add index_copy index_fill index_put _index_put_impl _unsafe_index _unsafe_index_put "
        "gather scatter scatter_add scatter_reduce take take_along_dim put masked_select masked_scatter nonzero one_hot"
    )),
    Rule("elementwise", _names(
        "add sub rsub mul div true_divide floor_divide remainder fmod pow exp exp2 expm1 log log2 log10 log1p sqrt "
        "rsqrt neg abs sign sgn sigmoid silu gelu relu leaky_relu elu mish hardtanh hardswish softplus tanh sin cos "
        "tan erf atan2 reciprocal square where masked_fill clamp clamp_min clamp_max maximum minimum eq ne lt gt le ge "
        "logical_and logical_or logical_not logical_xor bitwise_and bitwise_or bitwise_not bitwise_xor addcmul addcdiv "
        "lerp fill zero zeros ones full zeros_like ones_like full_like new_zeros tril triu dropout native_dropout "
        "bernoulli threshold glu arange linspace isnan isinf isfinite nan_to_num floor ceil round polar complex rand "
        "randn normal uniform randint scalar_tensor masked_scale"
    ) + r"|aten::_amp_\w+|aten::rotary\w*"),
)  # fmt: skip

# The rules for kernels without a known operator, and for all kernels that communicate.
KERNELS = (
    # Inductor names a kernel after its kind, and then after everything that was fused into it.
    Rule("attention fused", r"triton_tem_fused_\w*flex_attention\w*"),
    Rule("matrix product", r"triton_tem_\w+"),
    Rule("elementwise", r"triton_(poi|for)_\w+"),
    Rule("reduction", r"triton_(per|red|mix|spl)_(?!\w*(?<!log)_softmax)\w+"),
    Rule(SOFTMAX, r"triton_(per|red|mix|spl)_\w+"),
    Rule("communication", r"(?i).*(nccl|rccl|oneccl|msccl|nvshmem|all_?reduce_kernel|multimem).*"),
    Rule("attention fused", r"(?i).*(flash_?(fwd|bwd|attn|attention|mla)|fmha|attn_(fwd|bwd)|mem_eff|sdpa|"
         r"flex_attention|attention_kernel|bwd_kernel_(dk_dv|dq)).*"),
    Rule("optimizer", r"(?i).*(fused_?adamw?|adamw?_(kernel|functor)|FusedOptimizer|LambdaUpdate).*"),
    Rule("matrix product", r"(?i).*(gemm|gemv|cublas|nvjet|cutlass.*(conv|wgrad|dgrad|fprop)|cijk_|xmma|wgmma|splitk|"
         r"implicit_convolve|convolve|winograd|fft2d|ck::.*conv|rocblas|hipblaslt).*"),
    Rule("reduction", r"(?i).*(log_?softmax|nll_loss|cross_entropy|gatherTopK|radixFindKthValues).*"),
    Rule(SOFTMAX, r"(?i).*softmax.*"),
    Rule("embedding and gather", r"(?i).*(embedding|index_?select|indexing|index_(elementwise|put)|gather|scatter).*"),
    # Before the pointwise kernels, since torch's copies are among them.
    Rule("copy", r"(?i).*(copy_kernel|catarray|memcpy|memset|transpose|copyBuffer|fillBuffer).*"),
    Rule("reduction", r"(?i).*(reduce_kernel|layer_?norm|rms_?norm|batch_?norm|rowwise|argmax|cumsum|radixsort|"
         r"devicescan|devicereduce|cub::).*"),
    Rule("elementwise", r"(?i).*(elementwise|pointwise|vectorized_|unrolled_|multi_tensor_apply|fillfunctor|"
         r"distribution_|dropout|silu|gelu|sigmoid|triu|tril|arange).*"),
)  # fmt: skip


@functools.cache
def first_rule(rules: tuple[Rule, ...], name: str) -> Rule | None:
    """Return the first rule that matches a name, or None."""
    return next((rule for rule in rules if re.fullmatch(rule.pattern, name, re.DOTALL)), None)


def class_of(around: Sequence[str], ranges: tuple[str, ...], kernel: str = "") -> str:
    """Return the class of an operator or of a kernel.

    Examples are `matrix product` and `communication`. An operator is seen without those inside it.

    Args:
        around: the names of the operator and those around it, the outermost first; empty where unknown.
        ranges: the model's parts around it, the outermost first.
        kernel: the name of the kernel; empty for an operator's own work.
    """
    rules = [rule for name in around if (rule := first_rule(OPERATORS, name)) is not None]
    kernel_rule = first_rule(KERNELS, kernel) if kernel else None
    # Communication comes first, since an optimizer that is spread over ranks communicates too.
    if any(rule.kind == "communication" for rule in (*rules, kernel_rule) if rule is not None):
        return "communication"
    is_attention = in_attention(ranges)
    # The name of a part ends with its own name: `softmax` in `blocks.3.attention.softmax`.
    innermost_part = ranges[-1] if ranges else ""
    _, _, own_name = innermost_part.rpartition(".")
    if is_attention and "softmax" in own_name.lower():
        return "attention softmax"
    # The outermost inclusive rule decides, else the innermost operator, else the name of the kernel.
    innermost_rule = rules[-1] if rules else kernel_rule
    rule = next((rule for rule in rules if rule.inclusive), innermost_rule)
    if rule is not None and rule.kind == SOFTMAX:
        # Without ranges a softmax counts as attention's, since that is where a transformer has it.
        return "attention softmax" if is_attention or not ranges else "reduction"
    return rule.kind if rule is not None else "other"


@functools.cache
def in_attention(ranges: tuple[str, ...]) -> bool:
    """Return whether one of some ranges is attention.

    It is if one of the names between its dots is, such as `attn` or `self_attention`; `attention_norm` is not.
    """
    return any(_ATTENTION.fullmatch(part) for name in ranges for part in name.split("."))
