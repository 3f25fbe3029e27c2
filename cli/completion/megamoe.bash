# Bash completion of megamoe(1). tests/cli compares the lists with what `megamoe COMMAND --help` says.

_megamoe_presets="Qwen3-30B-A3B Qwen3-235B-A22B Qwen3.5-35B-A3B GLM-4.5-Air DeepSeek-V3 DeepSeek-V4-Flash MiniMax-M2
    gpt-oss-120b Mixtral-8x7B"
_megamoe_options="--preset --scale --hidden --intermediate --experts --top-k --ranks --tokens --routing --ids --weights
    --x --dy --gate --up --down --seed --weight-on --combine --limit --keep --capacity --drop --backend --threads --json
    --progress --help --usage --version"

_megamoe() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
    local choices=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "run check bench trace info --help --usage --version" -- "$word"))
        return
    fi
    case $before in
        --preset) choices=$_megamoe_presets ;;
        --routing) choices="uniform zipf one file" ;;
        --weight-on) choices="output input" ;;
        --combine) choices="exact grouped" ;;
        --keep) choices="plan rows" ;;
        --backend) choices="cuda cpu" ;;
        --only) choices="forward backward" ;;
        --save)
            COMPREPLY=($(compgen -d -- "$word"))
            return
            ;;
        --ids | --weights | --x | --dy | --gate | --up | --down | --output | --draw)
            COMPREPLY=($(compgen -f -- "$word"))
            return
            ;;
        --scale | --hidden | --intermediate | --experts | --top-k | --ranks | --tokens | --seed | --limit | --capacity | \
            --threads | --bound | --iterations | --warmup | --records | --rows)
            return
            ;;
        *)
            choices=$_megamoe_options
            case $command in
                run) choices+=" --forward --save" ;;
                check) choices+=" --forward --bound" ;;
                bench) choices+=" --iterations --warmup --output --draw" ;;
                trace) choices+=" --only --output --records --rows --warmup" ;;
            esac
            ;;
    esac
    COMPREPLY=($(compgen -W "$choices" -- "$word"))
}

complete -o filenames -F _megamoe megamoe
