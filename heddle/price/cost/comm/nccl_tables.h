// Constants of the NCCL 2.27 model. Latencies are in microseconds, rates in GB/s; protocols are in
// the order LL, LL128, Simple.
//
// Sources: constants of NCCL's tuner (tuning.cc); for whole groups on H100 nodes with NVSwitch, the
// values that NCCL 2.27.5 logs; size corrections that AutoParallel fitted to nccl-tests.
#pragma once

namespace heddle::price::nccl {

struct LatencyAndRate {
  double latency;
  double rate;
};

// All-gather and reduce-scatter in a ring, by nodes (2, 4, 8, 16, 32) and ranks per node (1, 2, 4,
// 8).
inline constexpr LatencyAndRate kRingTable[5][4][3] = {
    {{{11.6, 48.0}, {22.5, 88.3}, {22.4, 96.0}},
     {{11.3, 52.0}, {21.8, 117.8}, {29.2, 128.0}},
     {{15.3, 44.6}, {29.4, 201.9}, {42.8, 219.4}},
     {{23.3, 41.6}, {44.6, 313.2}, {70.0, 409.6}}},
    {{{21.6, 27.2}, {39.5, 58.9}, {50.4, 64.0}},
     {{18.7, 23.3}, {33.6, 100.9}, {64.0, 109.7}},
     {{26.7, 21.8}, {48.8, 188.4}, {91.2, 204.8}},
     {{42.7, 21.1}, {79.2, 303.1}, {145.6, 396.4}}},
    {{{41.6, 23.3}, {73.5, 50.5}, {106.4, 54.9}},
     {{33.5, 21.8}, {57.2, 94.2}, {133.6, 102.4}},
     {{49.5, 21.1}, {87.6, 182.3}, {188.0, 198.2}},
     {{81.5, 20.7}, {148.4, 298.3}, {296.8, 390.1}}},
    {{{81.6, 21.8}, {141.5, 47.1}, {218.4, 51.2}},
     {{63.1, 21.1}, {104.4, 91.2}, {272.8, 99.1}},
     {{95.1, 20.7}, {165.2, 179.4}, {381.6, 195.0}},
     {{159.1, 20.6}, {286.8, 295.9}, {599.2, 387.0}}},
    {{{161.6, 21.1}, {277.5, 45.6}, {442.4, 49.5}},
     {{122.3, 20.7}, {198.8, 89.7}, {551.2, 97.5}},
     {{186.3, 20.6}, {320.4, 178.0}, {768.8, 193.5}},
     {{314.3, 20.5}, {563.6, 294.8}, {1204.0, 385.5}}},
};

// All-reduce in a tree, with the same indices.
inline constexpr LatencyAndRate kTreeTable[5][4][3] = {
    {{{16.8, 9.3}, {31.0, 31.2}, {36.4, 35.2}},
     {{18.0, 16.6}, {33.5, 62.4}, {44.4, 70.4}},
     {{20.4, 16.6}, {38.5, 124.8}, {60.4, 140.8}},
     {{25.2, 16.6}, {48.5, 124.8}, {92.4, 140.8}}},
    {{{26.8, 4.9}, {48.0, 17.6}, {64.4, 18.8}},
     {{28.0, 8.7}, {50.5, 35.2}, {72.4, 37.5}},
     {{30.4, 8.7}, {55.5, 70.4}, {88.4, 75.1}},
     {{35.2, 8.7}, {65.5, 98.6}, {120.4, 122.4}}},
    {{{36.8, 4.9}, {65.0, 17.6}, {92.4, 18.8}},
     {{38.0, 8.7}, {67.5, 35.2}, {100.4, 37.5}},
     {{40.4, 8.7}, {72.5, 70.4}, {116.4, 75.1}},
     {{45.2, 8.7}, {82.5, 98.6}, {148.4, 122.4}}},
    {{{46.8, 4.9}, {82.0, 17.6}, {120.4, 18.8}},
     {{48.0, 8.7}, {84.5, 35.2}, {128.4, 37.5}},
     {{50.4, 8.7}, {89.5, 70.4}, {144.4, 75.1}},
     {{55.2, 8.7}, {99.5, 98.6}, {176.4, 122.4}}},
    {{{56.8, 4.9}, {99.0, 17.6}, {148.4, 18.8}},
     {{58.0, 8.7}, {101.5, 35.2}, {156.4, 37.5}},
     {{60.4, 8.7}, {106.5, 70.4}, {172.4, 75.1}},
     {{65.2, 8.7}, {116.5, 98.6}, {204.4, 122.4}}},
};

// All-reduce in a tree of switches, Simple only, with 4 and 8 ranks per node.
inline constexpr LatencyAndRate kSwitchTreeTable[5][2] = {
    {{53.0, 160.0}, {53.0, 266.7}},  {{81.0, 80.0}, {81.0, 160.0}},
    {{109.0, 80.0}, {109.0, 160.0}}, {{137.0, 80.0}, {137.0, 160.0}},
    {{165.0, 80.0}, {165.0, 160.0}},
};

// Shares of the rate by size, from 64 bytes, doubling. A tree uses the whole size, the others the
// bytes of one rank.
inline constexpr double kTreeShare[3][24] = {
    {1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
     0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0},
    {1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
     0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0},
    {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
     0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9},
};
inline constexpr double kSwitchTreeShare[] = {1.0, 1.0, 1.0,  1.0,  1.0,  1.0,  1.0,  1.0,
                                              0.1, 0.1, 0.15, 0.28, 0.41, 0.55, 0.72, 0.88,
                                              1.0, 1.0, 1.0,  1.0,  1.0,  1.0,  1.0,  1.0};
inline constexpr double kFullNodesShare[] = {0.01, 0.02, 0.03, 0.06, 0.1,  0.16, 0.25, 0.36,
                                             0.68, 0.68, 0.68, 0.68, 0.68, 0.68, 0.68, 0.68,
                                             0.68, 0.68, 0.79, 0.87, 0.87, 0.87, 0.87, 0.87};
inline constexpr double kRingShare[] = {1.0,  1.0,  1.0,  1.0, 1.0,  1.0, 1.0,  1.0,
                                        1.0,  1.0,  1.0,  0.1, 0.18, 0.3, 0.43, 0.63,
                                        0.55, 0.78, 0.93, 1.0, 1.0,  1.0, 1.0,  1.0};
inline constexpr double kAllToAllShare[] = {1.0,  1.0,  1.0,  1.0,  1.0,  1.0,  1.0,  1.0,
                                            0.28, 0.28, 0.35, 0.43, 0.62, 0.71, 0.82, 0.89,
                                            0.92, 0.95, 1.0,  1.0,  1.0,  1.0,  1.0,  1.0};

// Inside a node with a switch, by ranks.
struct ByRanks {
  double ranks;
  double value;
};
inline constexpr ByRanks kGatherRate[] = {{2, 537}, {4, 434}, {8, 394}};
inline constexpr ByRanks kGatherLatency[] = {{2, 8}, {4, 17}, {8, 30}};
inline constexpr ByRanks kReduceRate[] = {{2, 324}, {4, 236}, {8, 267}};
inline constexpr ByRanks kReduceLatency[] = {{2, 10}, {4, 15}, {8, 31}};
inline constexpr double kAllToAllNodeLatency = 50;
inline constexpr double kAllToAllNodeRate[3] = {0, 380, 675};
// Between nodes, by number of nodes. The loss of the network grows more slowly with more nodes.
inline constexpr ByRanks kAllToAllLatency[] = {{2, 37}, {4, 42}, {8, 60}, {16, 98}, {32, 290}};
inline constexpr double kAllToAllLoss = 0.44;
// Without a switch.
inline constexpr double kAllToAllRingShare = 0.7;

// The tuner: by protocol, and rates of one channel by architecture (Ampere, Hopper, Blackwell) and
// nodes (1, 2, more).
inline constexpr double kTreeBase[3] = {6.8, 14.0, 8.4};
inline constexpr double kRingBase[3] = {6.6, 14.0, 8.4};
inline constexpr double kTreeNodeStep[3] = {0.6, 1.25, 4.0};
inline constexpr double kRingNodeStep[3] = {0.6, 1.9, 3.4};
inline constexpr double kTreeNetStep[3] = {5.0, 8.5, 14.0};
inline constexpr double kRingNetStep[3] = {2.7, 4.0, 14.0};
inline constexpr double kNetOverhead[3] = {1.0, 1.0, 3.0};
inline constexpr double kSwitchNodeStep = 25.0;
inline constexpr double kSwitchNetStep = 18.0;
inline constexpr double kSwitchTreeNetStep = 20.9;
inline constexpr double kSyncPerNode = 4.7;
inline constexpr double kTreeMost[3][3] = {
    {24.0, 23.6, 17.8}, {38.7, 41.4, 36.0}, {70.0, 42.8, 24.0}};
inline constexpr double kSwitchTreeMost[3][3] = {
    {24.0, 23.6, 17.8}, {0, 57.7, 45.5}, {0, 96.0, 43.8}};
inline constexpr double kLLMost[3][3] = {{87.7, 39.0, 20.4}, {141, 39.0, 20.4}, {282, 39.0, 20.4}};
inline constexpr double kRingLL128Most[3] = {20, 36.7, 40};
inline constexpr double kTreeLL128Most[3][3] = {
    {20, 20, 20}, {36.7, 36.7, 29.0}, {55.6, 31.67, 20.0}};
inline constexpr double kSwitchEfficiency[3] = {0, 0.85, 0.74};

}  // namespace heddle::price::nccl
