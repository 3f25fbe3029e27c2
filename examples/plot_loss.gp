# Draws the loss curves of train_moe:  gnuplot -c plot_loss.gp LOG.csv PICTURE.svg
set terminal svg size 800,480 font "sans-serif,14" background rgb "white"
set output ARG2
set datafile separator ","
set xlabel "step"
set ylabel "loss, nats per byte"
set grid
plot ARG1 using 1:2 skip 1 with lines lw 2 title "training", \
     ARG1 using 1:3 skip 1 with lines lw 2 title "validation"
