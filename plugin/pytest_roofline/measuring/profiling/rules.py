"""Names and the class that they mean, as data: each rule with its reason, the first that fits decides.

What no rule knows is `other`, and is listed by name.
"""

import re
from dataclasses import dataclass

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
        r"roofline_kernels::flash_\w+|flash_attn(_\d+)?::\w+|xformers\w*::\w+|(?!triton_)\w*flex_attention\w*|"
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

# Inductor names a kernel after its kind, and then after everything that was fused into it.
INDUCTOR = (
    _rule("attention fused", r"triton_tem_fused_\w*flex_attention\w*", "a template that does both products"),
    _rule("matrix product", r"triton_tem_\w+", "the other templates are products and convolutions"),
    _rule("elementwise", r"triton_(poi|for)_\w+", "pointwise, whatever it is named after"),
    _rule("reduction", r"triton_(per|red|mix|spl)_\w*(log_softmax|nll_loss|cross_entropy)\w*", "the loss"),
    _rule(SOFTMAX, r"triton_(per|red|mix|spl)_\w*_softmax\w*", "a softmax that is not the loss's"),
    _rule("reduction", r"triton_(per|red|mix|spl)_\w+", "persistent, looped and split reductions"),
)

KERNELS = (
    *INDUCTOR,
    _rule("communication", r"(?i).*(nccl|rccl|oneccl|msccl|nvshmem|all_?reduce_kernel|multimem).*",
          "libraries of collectives"),
    _rule(
        "attention fused",
        r"(?i).*(flash_?(fwd|bwd|attn|attention|mla)|fmha|attn_(fwd|bwd)|mem_eff|sdpa|flex_attention|"
        r"attention_kernel|bwd_kernel_(dk_dv|dq)|ck_tile.*fmha).*",
        "the back ends of SDPA; they do both products and the softmax",
    ),
    _rule("optimizer", r"(?i).*(fused_?adamw?|adamw?_(kernel|functor)|FusedOptimizer|LambdaUpdate).*",
          "fused updates; unfused ones are known by their range"),
    _rule(
        "matrix product",
        r"(?i).*(gemm|gemv|cublas|nvjet|cutlass.*(conv|wgrad|dgrad|fprop)|cijk_|xmma|wgmma|splitk|"
        r"implicit_convolve|convolve|winograd|fft2d|ck::.*conv|rocblas|hipblaslt).*",
        "cuBLAS, cuBLASLt, CUTLASS, rocBLAS and Tensile",
    ),
    _rule("reduction", r"(?i).*(log_?softmax|nll_loss|cross_entropy).*", "the loss"),
    _rule(SOFTMAX, r"(?i).*softmax.*", "a softmax that is not the loss's"),
    _rule("reduction", r"(?i).*(gatherTopK|radixFindKthValues).*", "sorts, which gather nothing by index"),
    _rule("embedding and gather",
          r"(?i).*(embedding|index_?select|indexing|index_elementwise|gather|scatter|index_put|vectorized_gather).*",
          "reads or writes by index"),
    _rule("copy", r"(?i).*(copy_kernel|catarray|memcpy|memset|transpose|copyBuffer|fillBuffer).*",
          "inside of torch's pointwise kernels too, so before those"),
    _rule("reduction",
          r"(?i).*(reduce_kernel|layer_?norm|rms_?norm|batch_?norm|rowwise|argmax|cumsum|radixsort|"
          r"devicescan|devicereduce|cub::).*",
          "norms, sums, sorts"),
    _rule("elementwise",
          r"(?i).*(elementwise|pointwise|vectorized_|unrolled_|multi_tensor_apply|fillfunctor|"
          r"distribution_|dropout|silu|gelu|sigmoid|triu|tril|arange).*",
          "torch's pointwise kernels"),
)  # fmt: skip


def first_rule(rules: tuple[Rule, ...], name: str) -> Rule | None:
    """The rule that decides on a name; None where none knows it."""
    return next((rule for rule in rules if rule.pattern.fullmatch(name)), None)
