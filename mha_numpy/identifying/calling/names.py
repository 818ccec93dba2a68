"""What the names of arguments suggest: a first guess, which calls confirm or refute."""

import re
from functools import cache

WORDS: dict[str, str] = {  # role: a pattern for whole names, in lower case without underscores
    "cache_k": r"(kcache|cachek|cachedk|cachedkeys|cachekeys?|keycache|cachekey|pastk|pastkeys?|kpast|kprev|prevk|prevkeys|oldk|kold|kmem|ck|layerpastk)",
    "cache_v": r"(vcache|cachev|cachedv|cachedvalues|cachevalues?|valuecache|cachevalue|pastv|pastvalues?|vpast|vprev|prevv|prevvalues|oldv|vold|vmem|cv|layerpastv)",
    "result": r"(out|o|output|dst|dest|result|res|y|outbuf|buf|outputs|ctx|scratch|preatt|att|scores|tmp)",
    "packed": r"(x|in)?(qkv|packed)(s|packed|states|proj|in)?",
    "query": r"x?(q|qs|que|query|queries|qry|qh|qhead|qheads|qmat|qvec|qt|qi|qx|qin|qstates|querystates|"
    r"querylayer|queryvec|queryvectors|decoderstate|needle|wanted|asks?|asking|asker|cand|candidates?|latents?|seeker|seekers|queryinput)",
    "key": r"x?(k|ks|key|keys|kh|khead|kheads|kmat|kvec|kt|kj|kx|kin|kstates|keystates|keylayer|keyvec|"
    r"keyvectors|kcache|cachek|cachedk|cachedkeys|keycache|pastk|pastkey|pastkeys|kpast|kall|allk)",
    "value": r"x?(v|vs|val|vals|value|values|vh|vhead|vheads|vmat|vvec|vj|vx|vin|vstates|valuestates|"
    r"valuelayer|valuevectors|vcache|cachev|cachedv|cachedvalues|valuecache|pastv|pastvalue|pastvalues|vpast|vall|allv)",
    "x": r"(x|xs|xx|inp|inps|inputs?|hidden|hiddenstates?|h|hs|emb|embs|embed|embedded|embeddings?|tokens?|"
    r"tok|seq|sequence|src|feats?|features|states|data|inputtensor|inputembeddings|text|xin|xq|tgt|target|z|stream|words)",
    "memory": r"(mem|memory|ctx|context|enc|encout|encoderout(put)?s?|encoderhiddenstates|encodings?|kv|xkv|kvx|kvin|source|"
    r"src|y|other|crossattentionstates|keyvaluestates|kvinput|kvsource|encoded|encstates|encmem|annotations?|docs?|documents?|passages?|items|hist|history|image)",
    "mask": r"(attn|attention|att|src|tgt|causal|key|self|bool|visible|allowed|allow|keep|blocked?|block|hide|hidden|m|is)?"
    r"(mask|msk|masked|masks|mask2d|maskbias)(ed|in|out)?|m|visible|allowed|blocked|allow|forbid|forbidden|keep|may|see|sees|cansee|hidden|hide|banned|valid",
    "B": r"(b|bs|bsz|batch|batchsize|nbatch|nb)",
    "padding": r"(src|tgt|key|kv|k|mem|memory|enc|encoder|seq|input|inputs)?(pad|padding|keypadding|keypad|padded|pads)(mask|masks|tokens|ding)?|"
    r"(key|kv|k|token|seq|tok|src|valid|real|input)(mask|valid|real|pad|ok)|valid|real|isreal|ispad|attentionmask|validmask|keepkeys?",
    "lengths": r"(seq|key|kv|k|src|valid|ctx|mem|x)?(len|lens|lengths?|seqlens?|nvalid|sizes)(s|kv|k)?|(n|num)(valid|keys|real|tokens)|validlens?",
    "bias": r"(attn|attention|pos|position|rel|relative|score|logit|alibi|additive|relpos|positional|t5)?(bias|biases|posbias|positionbias|"
    r"scorebias|relbias|additive|addmask|addtoscores|pb|alibi|relposbias|offsets|penalty|penalties)|scoresbias|biasmask",
    "bias_table": r"rel(pos)?|(rel|relative|relpos|t5|position|pos|relattn|distance)?(bias|attention)?(bias|table|embedding|biastable|emb|relbias|biases)(weights?|table)?|(rel)?biasvalues?|relativeattentionbias|relbias",
    "is_causal": r"(is|use|apply|with|do)?(causal|causalmask|autoregressive|ar|decoder|masked|unidirectional|lookahead|nopeek|nopeeking|lefttoright|"
    r"maskfuture|hidefuture|nofuture|triangular|tril)(mask)?",
    "window": r"(attn|attention|sliding|local|slide|left|right|band|half|n|num)?(window|halfwidth|bandwidth|neighbou?rs?|windowsize|win|w|local|band|slidingwindow|windowlength|span|lookback|localsize|radius|reach)(size|len|length)?",
    "scale": r"(softmax|attn|attention|sm|qk|score|logit)?(scale|scaling|scalefactor|scalingfactor|temp|temperature|tau|norm|factor|normfactor|invtemp|mult|multiplier|beta|s)(factor)?",
    "softcap": r"(attn|attention|logit|logits|score|scores|soft)?(softcap|cap|softcapping|logitcap|logitsoftcap|logitsoftcapping|tanhcap|clip|softclip)(value)?",
    "H": r"nq|(n|num|no|nb|number|numberof|q|nq|numq|numattention|numattn|attention|numquery|nquery|query)?(h|heads?|nh|nheads?|hd|hq|headsnum|headcount|attnheads?|attentionheads?|qheads?|queryheads?|heads?q)(s|num)?",
    "G": r"(n|num|no|nb|number|)?(g|kvh|hkv|kv(num)?heads?|keyvalueheads?|groups?|kvgroups?|nkv|headskv|nkvheads?|kvhead|kheads?|querygroups?)(s|num)?",
    "D": r"(d|dim|dmodel|modeldim|embeddim|embdim|embedsize|hidden(size|dim)?|width|channels|c|nembd|ndim|inputdim|din|dout|outdim|emsize|nstate|features|dimin|dimout|e)",
    "d": r"(d|dk|dh|hs|dhead|headdim|headsize|dimhead|dv|hd|keydim|valuedim|headwidth|dperhead|dimperhead|qkvdim|kdim)",
    "rate": r"(keep|retain)(prob|probability|p|rate)|p(keep|retain)|(attn|attention|p|drop)?(dropout|drop|pdrop|dropoutp|dropoutrate|droprate|pdropout|rate|dropprob|dropoutprob|p|attnpdrop|residpdrop|residdropout)(p|rate|prob)?",
    "dropout_mask": r"(drop|dropout|attndrop|attndropout|keep)(mask|keep|multiplier|pattern|ed|masks)|keepmask|droppattern",
    "rng": r"(rng|seed|key|generator|gen|randomstate|random|prng|prngkey|rngkey|rs|droprng|dropoutrng|dropoutkey)",
    "training": r"(is|in)?(train|training|trainmode|deterministic|istrain|istraining|inference|eval|mode|trainflag)",
    "flag": r"(return|ret|need|output|with|want|give|average|avg|keep|also|get|debug|verbose|use|save|inc|include|full)\w*",
    "cos": r"(cos|cosine|ropecos|freqscos|costable|cosines|c)",
    "sin": r"(sin|sine|ropesin|freqssin|sintable|sines|s)",
    "w_qkv": r"(w|weights?|p|proj|c|in|kernel|to)?(qkv|cattn|inproj|qkvproj|wqkv|attn|attnw|qkvw|qkvweights?|packed|all)(weights?|w|kernel|proj|projweight|mat|projw)?",
    "w_kv": r"(w|weights?|proj|to)?(kv|wkv|kvproj)(weights?|w|kernel|proj)?",
    "b_qkv": r"bpacked|(b|bias)?(qkv|cattn|inproj|qkvproj|attn)(bias|b|projbias)|b(qkv|attn|inproj)|inprojbias",
    "w_q": r"theta|(w|weights?|proj|lin|linear|m|mat|p|to|theta|u|kernel|u)?(q|query|queries|wq|qproj|qproject\w*|qlin|tq|wquery|qw)(weights?|w|kernel|proj|lin|linear|dense|mat|projw|matrix|map|projection)?s?",
    "w_k": r"phi|(w|weights?|proj|lin|linear|m|mat|p|to|theta|kernel|u)?(k|key|keys|wk|kproj|kproject\w*|klin|tk|wkey|kw)(weights?|w|kernel|proj|lin|linear|dense|mat|projw|matrix|map|projection)?s?",
    "w_v": r"(w|weights?|proj|lin|linear|m|mat|p|to|theta|kernel|u)?(v|value|values|val|wv|vproj|vproject\w*|vlin|tv|wvalue|vw)(weights?|w|kernel|proj|lin|linear|dense|mat|projw|matrix|map|projection)?s?",
    "w_o": r"linear|wz|(?!pos$)(w|weights?|proj|lin|linear|m|mat|p|to|c|theta|kernel|u)?(o|out|output|outs|proj|outproj|oproj|oproject\w*|wo|cproj|dense|lino|to|wout|final|merge|mix|unify|combine|ow)(weights?|w|kernel|proj|lin|linear|dense|mat|projw|matrix|map|0weight|0|projection)?s?",
    "w_g": r"w(g|gate)|(w|attn|output|out|o|to)?(g|gate)(proj|weights?|kernel)|(w|output|to)gates?",
    "g_q": r"(q|query)(gain|gamma|norm|ln|layernorm|rmsnorm|g)(weight|w|gain|scale|g)?|(gain|gamma|norm|g)(q|query)",
    "g_k": r"(k|key)(gain|gamma|norm|ln|layernorm|rmsnorm|g)(weight|w|gain|scale|g)?|(gain|gamma|norm|g)(k|key)",
    "b_q": r"(b|bias)(q|query)|(q|query|wq|qproj|qlin)(bias|b)",
    "b_k": r"(b|bias)(k|key)|(k|key|wk|kproj|klin)(bias|b)",
    "b_v": r"(b|bias)(v|value|val)|(v|value|wv|vproj|vlin)(bias|b)",
    "b_o": r"(b|bias)(o|out|output|proj)|(o|out|output|outproj|oproj|wo|cproj|proj|dense|to)(bias|b)|to0bias",
    "b_kv": r"(b|bias)kv|kv(bias|b)",
    "params": r"(params?|weights?|w|ws|p|theta|wts|parameters|state|statedict|layer|vars|variables|pd|dict|prm)",
    "positions": r"(pos|position|positions|positionids|posids|tpos|inputpos|idx|indices|qpos|kpos)s?",
    "cos_sin": r"(pos|position|rotary|rope)(al)?(emb|embs|embeddings?)|(rope|rotary|freqs)?(cossin|cis)|rotary|rope",
    "base": r"(rope)?(base|theta|ropetheta|ropebase|freqbase|b)",
    "offset": r"(q|query|start|pos|past|cache|causal|position|key)?(offset|startpos|shift|pastlen(gth)?|nprev|npast|cachelen|qoffset|start|qstart|posoffset|t0|curpos|step|index|cachepos|poffset|pos|begin|past|prior|from)",
    "sink": r"(attn|attention|head|logit)?(sink|sinks|sinklogits?|sinkscores?|extralogits?|offby1|aux)(s)?",
    "head_gate": r"(head)?(gate|gates|headgate|headmask|headweights?|headscale|headimportance|lam|hmask)s?",
    "block": r"(block|blk|chunk|tile|bs|kv|q|b|key)?(size|block|blk|chunk|chunksize|blocksize|tile|tilesize|bk|bq|kvchunk|qchunk|nblocks?|chunks?|blocklen|step|stride|dilation)(size|s|q|k|kv|rate)?",
    "eps": r"(eps|epsilon|tiny|small|eps0)",
    "S": r"s|tk|lk|sk|nk|(n|num)keys|(k|kv|key|src|mem)(len|length)",
    "T": r"(t|tq|lq|sq|nq|(out|q|query|tgt)(len|length|rows)|(n|num)?(rows|queries|tokens)|seqlen|maxlen|maxseqlen|contextlength|ctxlen|ctx|context|n|l|maxlength|maxtokens|nctx|maxposition\w*)",
    "d_out": r"(d|g|grad|dl|up|upstream|dloss)(y|o|out|output|outputs|z|h|context|ctx|heads|attn|res|result)?|gradout(put)?|upstream(grad)?|cotangent|ybar|delta",
}  # fmt: skip
KINDS = frozenset((  # words that say little after another one
    "t", "i", "n", "new", "seq", "sequence", "input", "inputs", "tensor", "array", "mat", "vec",
    "vecs", "vector", "vectors", "tokens", "state", "states", "emb", "embs", "embeddings", "items",
))  # fmt: skip
PATTERNS = {role: re.compile(pattern) for role, pattern in WORDS.items()}


@cache
def roles_by_name(name: str) -> tuple[str, ...]:
    """Return the roles whose names are like this one.

    Examples
    --------
    >>> roles_by_name("num_heads"), roles_by_name("W_Q"), roles_by_name("encoder_outputs")
    (('H',), ('w_q',), ('memory',))
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rsplit("/", 1)[-1]).lower().split("_")
    words = [word for word in words if word]
    is_kind = bool(words) and words[-1] in KINDS  # query_seq and x_t are a query and x
    for part in ("".join(words), "".join(words[:-1]) if is_kind else "", *words[::-1]):
        roles = tuple(role for role, pattern in PATTERNS.items() if pattern.fullmatch(part))
        if roles:
            return roles
    return ()
