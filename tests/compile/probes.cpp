// SPDX-License-Identifier: BSD-3-Clause
// probes.cpp — the table of probes, in the order of the headers.
#include "tests/compile/probes.h"

#include <fmt/core.h>

#include <iterator>

#include "backend/cuda/device_headers.h"
#include "device/ptx/mma_types.h"

namespace fa3::kit {
namespace {

const Probe kProbes[] = {
    {"thread_index", "keep(thread_index());", {"%tid.x"}},
    {"block_threads", "keep(block_threads());", {"%ntid.x"}},
    {"block_index_x", "keep(block_index_x());", {"%ctaid.x"}},
    {"grid_dim_x", "keep(grid_dim_x());", {"%nctaid.x"}},
    {"block_index_y", "keep(block_index_y());", {"%ctaid.y"}},
    {"grid_dim_y", "keep(grid_dim_y());", {"%nctaid.y"}},
    {"block_index_z", "keep(block_index_z());", {"%ctaid.z"}},
    {"grid_dim_z", "keep(grid_dim_z());", {"%nctaid.z"}},
    {"cluster_rank", "keep(cluster_rank());", {"%cluster_ctarank"}},
    {"cluster_size", "keep(cluster_size());", {"%cluster_nctarank"}},
    {"lane_index", "keep(lane_index());", {"%tid.x"}},
    {"warp_index", "keep(warp_index());", {"shfl.sync.idx"}},
    {"warpgroup_index", "keep(warpgroup_index());", {"shfl.sync.idx"}},
    {"shfl_idx", "keep(shfl_idx(w, 3));", {"shfl.sync.idx.b32"}},
    {"shfl_xor", "keep(shfl_xor(f, 3));", {"shfl.sync.bfly.b32"}},
    {"shfl_up", "keep(shfl_up(w, 3));", {"shfl.sync.up.b32"}},
    {"shfl_down", "keep(shfl_down(w, 3));", {"shfl.sync.down.b32"}},
    {"ballot", "keep(ballot(w > 1));", {"vote.sync.ballot.b32"}},
    {"any", "keep(any(w > 1));", {"vote.sync.any.pred"}},
    {"all", "keep(all(w > 1));", {"vote.sync.all.pred"}},
    {"elect_one", "keep(elect_one());", {"elect.sync"}},
    {"redux_add", "keep(redux_add(w));", {"redux.sync.add.u32"}},
    {"redux_min_u32", "keep(redux_min_u32(w));", {"redux.sync.min.u32"}},
    {"redux_max_u32", "keep(redux_max_u32(w));", {"redux.sync.max.u32"}},
    {"redux_min_i32", "keep(redux_min_i32(n));", {"redux.sync.min.s32"}},
    {"redux_max_i32", "keep(redux_max_i32(n));", {"redux.sync.max.s32"}},
    {"redux_and", "keep(redux_and(w));", {"redux.sync.and.b32"}},
    {"redux_or", "keep(redux_or(w));", {"redux.sync.or.b32"}},
    {"smem_as", "smem_as<Vec<u32, 4>>()[0] = w;", {"fa3_smem"}},
    {"smem_address", "keep(smem_address(reinterpret_cast<void*>(d)));", {"cvta.to.shared"}},
    {"map_to_rank", "keep(map_to_rank(w, 1));", {"mapa.shared::cluster.u32"}},
    {"ld_shared", "keep(ld_shared(shared_as<u8>()));", {"ld.shared.u8"}},
    {"ld_global", "keep(ld_global(global_as<u8>()));", {"ld.global.u8"}},
    {"ld_global_nc", "keep(ld_global_nc(global_as<u8>()));", {"ld.global.nc.u8"}},
    {"ld_volatile", "keep(ld_volatile(global_as<u8>()));", {"ld.volatile.global.u8"}},
    {"ld_relaxed_gpu", "keep(ld_relaxed_gpu(global_as<u8>()));", {"ld.relaxed.gpu.global.u8"}},
    {"ld_acquire_gpu", "keep(ld_acquire_gpu(global_as<u8>()));", {"ld.acquire.gpu.global.u8"}},
    {"ld_shared_cluster", "keep(ld_shared_cluster<u8>(w));", {"ld.shared::cluster.u8"}},
    {"st_shared", "st_shared(shared_as<u8>(), value_as<u8>());", {"st.shared.u8"}},
    {"st_global", "st_global(global_as<u8>(), value_as<u8>());", {"st.global.u8"}},
    {"st_relaxed_gpu",
     "st_relaxed_gpu(global_as<u8>(), value_as<u8>());",
     {"st.relaxed.gpu.global.u8"}},
    {"st_release_gpu",
     "st_release_gpu(global_as<u8>(), value_as<u8>());",
     {"st.release.gpu.global.u8"}},
    {"st_shared_cluster", "st_shared_cluster(w, value_as<u8>());", {"st.shared::cluster.u8"}},
    {"ld_shared", "keep(ld_shared(shared_as<u16>()));", {"ld.shared.u16"}},
    {"ld_global", "keep(ld_global(global_as<u16>()));", {"ld.global.u16"}},
    {"ld_global_nc", "keep(ld_global_nc(global_as<u16>()));", {"ld.global.nc.u16"}},
    {"ld_volatile", "keep(ld_volatile(global_as<u16>()));", {"ld.volatile.global.u16"}},
    {"ld_relaxed_gpu", "keep(ld_relaxed_gpu(global_as<u16>()));", {"ld.relaxed.gpu.global.u16"}},
    {"ld_acquire_gpu", "keep(ld_acquire_gpu(global_as<u16>()));", {"ld.acquire.gpu.global.u16"}},
    {"ld_shared_cluster", "keep(ld_shared_cluster<u16>(w));", {"ld.shared::cluster.u16"}},
    {"st_shared", "st_shared(shared_as<u16>(), value_as<u16>());", {"st.shared.u16"}},
    {"st_global", "st_global(global_as<u16>(), value_as<u16>());", {"st.global.u16"}},
    {"st_relaxed_gpu",
     "st_relaxed_gpu(global_as<u16>(), value_as<u16>());",
     {"st.relaxed.gpu.global.u16"}},
    {"st_release_gpu",
     "st_release_gpu(global_as<u16>(), value_as<u16>());",
     {"st.release.gpu.global.u16"}},
    {"st_shared_cluster", "st_shared_cluster(w, value_as<u16>());", {"st.shared::cluster.u16"}},
    {"ld_shared", "keep(ld_shared(shared_as<u32>()));", {"ld.shared.u32"}},
    {"ld_global", "keep(ld_global(global_as<u32>()));", {"ld.global.u32"}},
    {"ld_global_nc", "keep(ld_global_nc(global_as<u32>()));", {"ld.global.nc.u32"}},
    {"ld_volatile", "keep(ld_volatile(global_as<u32>()));", {"ld.volatile.global.u32"}},
    {"ld_relaxed_gpu", "keep(ld_relaxed_gpu(global_as<u32>()));", {"ld.relaxed.gpu.global.u32"}},
    {"ld_acquire_gpu", "keep(ld_acquire_gpu(global_as<u32>()));", {"ld.acquire.gpu.global.u32"}},
    {"ld_shared_cluster", "keep(ld_shared_cluster<u32>(w));", {"ld.shared::cluster.u32"}},
    {"st_shared", "st_shared(shared_as<u32>(), value_as<u32>());", {"st.shared.u32"}},
    {"st_global", "st_global(global_as<u32>(), value_as<u32>());", {"st.global.u32"}},
    {"st_relaxed_gpu",
     "st_relaxed_gpu(global_as<u32>(), value_as<u32>());",
     {"st.relaxed.gpu.global.u32"}},
    {"st_release_gpu",
     "st_release_gpu(global_as<u32>(), value_as<u32>());",
     {"st.release.gpu.global.u32"}},
    {"st_shared_cluster", "st_shared_cluster(w, value_as<u32>());", {"st.shared::cluster.u32"}},
    {"ld_shared", "keep(ld_shared(shared_as<u64>()));", {"ld.shared.u64"}},
    {"ld_global", "keep(ld_global(global_as<u64>()));", {"ld.global.u64"}},
    {"ld_global_nc", "keep(ld_global_nc(global_as<u64>()));", {"ld.global.nc.u64"}},
    {"ld_volatile", "keep(ld_volatile(global_as<u64>()));", {"ld.volatile.global.u64"}},
    {"ld_relaxed_gpu", "keep(ld_relaxed_gpu(global_as<u64>()));", {"ld.relaxed.gpu.global.u64"}},
    {"ld_acquire_gpu", "keep(ld_acquire_gpu(global_as<u64>()));", {"ld.acquire.gpu.global.u64"}},
    {"ld_shared_cluster", "keep(ld_shared_cluster<u64>(w));", {"ld.shared::cluster.u64"}},
    {"st_shared", "st_shared(shared_as<u64>(), value_as<u64>());", {"st.shared.u64"}},
    {"st_global", "st_global(global_as<u64>(), value_as<u64>());", {"st.global.u64"}},
    {"st_relaxed_gpu",
     "st_relaxed_gpu(global_as<u64>(), value_as<u64>());",
     {"st.relaxed.gpu.global.u64"}},
    {"st_release_gpu",
     "st_release_gpu(global_as<u64>(), value_as<u64>());",
     {"st.release.gpu.global.u64"}},
    {"st_shared_cluster", "st_shared_cluster(w, value_as<u64>());", {"st.shared::cluster.u64"}},
    {"ld_shared", "keep(ld_shared(shared_as<Vec<float, 4>>()));", {"ld.shared.v4.u32"}},
    {"ld_global", "keep(ld_global(global_as<Vec<float, 4>>()));", {"ld.global.v4.u32"}},
    {"ld_global_nc", "keep(ld_global_nc(global_as<Vec<float, 4>>()));", {"ld.global.nc.v4.u32"}},
    {"ld_volatile",
     "keep(ld_volatile(global_as<Vec<float, 4>>()));",
     {"ld.volatile.global.v4.u32"}},
    {"ld_relaxed_gpu",
     "keep(ld_relaxed_gpu(global_as<Vec<float, 4>>()));",
     {"ld.relaxed.gpu.global.v4.u32"}},
    {"ld_acquire_gpu",
     "keep(ld_acquire_gpu(global_as<Vec<float, 4>>()));",
     {"ld.acquire.gpu.global.v4.u32"}},
    {"ld_shared_cluster",
     "keep(ld_shared_cluster<Vec<float, 4>>(w));",
     {"ld.shared::cluster.v4.u32"}},
    {"st_shared",
     "st_shared(shared_as<Vec<float, 4>>(), value_as<Vec<float, 4>>());",
     {"st.shared.v4.u32"}},
    {"st_global",
     "st_global(global_as<Vec<float, 4>>(), value_as<Vec<float, 4>>());",
     {"st.global.v4.u32"}},
    {"st_relaxed_gpu",
     "st_relaxed_gpu(global_as<Vec<float, 4>>(), value_as<Vec<float, 4>>());",
     {"st.relaxed.gpu.global.v4.u32"}},
    {"st_release_gpu",
     "st_release_gpu(global_as<Vec<float, 4>>(), value_as<Vec<float, 4>>());",
     {"st.release.gpu.global.v4.u32"}},
    {"st_shared_cluster",
     "st_shared_cluster(w, value_as<Vec<float, 4>>());",
     {"st.shared::cluster.v4.u32"}},
    {"atom_add_u32",
     "keep(atom_add_u32(global_as<u32>(), value_as<u32>()));",
     {"atom.relaxed.gpu.global.add.u32"}},
    {"atom_add_i32",
     "keep(atom_add_i32(global_as<i32>(), value_as<i32>()));",
     {"atom.relaxed.gpu.global.add.s32"}},
    {"atom_add_u64",
     "keep(atom_add_u64(global_as<u64>(), value_as<u64>()));",
     {"atom.relaxed.gpu.global.add.u64"}},
    {"atom_add_f32",
     "keep(atom_add_f32(global_as<float>(), value_as<float>()));",
     {"atom.relaxed.gpu.global.add.f32"}},
    {"atom_add_acq_rel_u32",
     "keep(atom_add_acq_rel_u32(global_as<u32>(), value_as<u32>()));",
     {"atom.acq_rel.gpu.global.add.u32"}},
    {"atom_max_u32",
     "keep(atom_max_u32(global_as<u32>(), value_as<u32>()));",
     {"atom.relaxed.gpu.global.max.u32"}},
    {"atom_max_i32",
     "keep(atom_max_i32(global_as<i32>(), value_as<i32>()));",
     {"atom.relaxed.gpu.global.max.s32"}},
    {"atom_min_u32",
     "keep(atom_min_u32(global_as<u32>(), value_as<u32>()));",
     {"atom.relaxed.gpu.global.min.u32"}},
    {"atom_min_i32",
     "keep(atom_min_i32(global_as<i32>(), value_as<i32>()));",
     {"atom.relaxed.gpu.global.min.s32"}},
    {"atom_exch_u32",
     "keep(atom_exch_u32(global_as<u32>(), value_as<u32>()));",
     {"atom.relaxed.gpu.global.exch.b32"}},
    {"atom_exch_acq_rel_u32",
     "keep(atom_exch_acq_rel_u32(global_as<u32>(), value_as<u32>()));",
     {"atom.acq_rel.gpu.global.exch.b32"}},
    {"atom_cas_u32",
     "keep(atom_cas_u32(global_as<u32>(), w, 7));",
     {"atom.relaxed.gpu.global.cas.b32"}},
    {"atom_cas_acq_rel_u32",
     "keep(atom_cas_acq_rel_u32(global_as<u32>(), w, 7));",
     {"atom.acq_rel.gpu.global.cas.b32"}},
    {"atom_shared_add_u32",
     "keep(atom_shared_add_u32(shared_as<u32>(), value_as<u32>()));",
     {"atom.relaxed.cta.shared.add.u32"}},
    {"atom_shared_add_f32",
     "keep(atom_shared_add_f32(shared_as<float>(), value_as<float>()));",
     {"atom.relaxed.cta.shared.add.f32"}},
    {"atom_shared_max_u32",
     "keep(atom_shared_max_u32(shared_as<u32>(), value_as<u32>()));",
     {"atom.relaxed.cta.shared.max.u32"}},
    {"atom_shared_max_i32",
     "keep(atom_shared_max_i32(shared_as<i32>(), value_as<i32>()));",
     {"atom.relaxed.cta.shared.max.s32"}},
    {"red_add_release_u32",
     "red_add_release_u32(global_as<u32>(), w);",
     {"red.release.gpu.global.add.u32"}},
    {"red_add_f32", "red_add_f32(global_as<float>(), f);", {"red.relaxed.gpu.global.add.f32"}},
    {"red_add_v2_f32",
     "red_add_v2_f32(global_as<float>(), {f, f});",
     {"red.relaxed.gpu.global.add.v2.f32"}},
    {"red_add_v4_f32",
     "red_add_v4_f32(global_as<float>(), {f, f, f, f});",
     {"red.relaxed.gpu.global.add.v4.f32"}},
    {"fence_proxy_async_shared", "fence_proxy_async_shared();", {"fence.proxy.async.shared::cta;"}},
    {"fence_proxy_async_global", "fence_proxy_async_global();", {"fence.proxy.async.global;"}},
    {"fence_proxy_async", "fence_proxy_async();", {"fence.proxy.async;"}},
    {"fence_acq_rel_cta", "fence_acq_rel_cta();", {"fence.acq_rel.cta;"}},
    {"fence_acq_rel_cluster", "fence_acq_rel_cluster();", {"fence.acq_rel.cluster;"}},
    {"fence_acq_rel_gpu", "fence_acq_rel_gpu();", {"fence.acq_rel.gpu;"}},
    {"fence_acq_rel_sys", "fence_acq_rel_sys();", {"fence.acq_rel.sys;"}},
    {"fence_mbar_init", "fence_mbar_init();", {"fence.mbarrier_init.release.cluster;"}},
    {"mbar_init", "mbar_init(w, 3);", {"mbarrier.init.shared::cta.b64"}},
    {"mbar_inval", "mbar_inval(w);", {"mbarrier.inval.shared::cta.b64"}},
    {"mbar_arrive", "mbar_arrive(w);", {"mbarrier.arrive.release.cta.shared::cta.b64"}},
    {"mbar_arrive_if",
     "mbar_arrive_if(w, w > 3);",
     {"@p mbarrier.arrive.release.cta.shared::cta.b64"}},
    {"mbar_arrive_drop",
     "mbar_arrive_drop(w);",
     {"mbarrier.arrive_drop.release.cta.shared::cta.b64"}},
    {"mbar_expect_tx",
     "mbar_expect_tx(w, 16);",
     {"mbarrier.expect_tx.relaxed.cta.shared::cta.b64"}},
    {"mbar_arrive_expect_tx",
     "mbar_arrive_expect_tx(w, 16);",
     {"mbarrier.arrive.expect_tx.release.cta.shared::cta.b64"}},
    {"mbar_arrive_cluster",
     "mbar_arrive_cluster(w);",
     {"mbarrier.arrive.release.cluster.shared::cluster.b64"}},
    {"mbar_expect_tx_cluster",
     "mbar_expect_tx_cluster(w, 16);",
     {"mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64"}},
    {"mbar_arrive_expect_tx_cluster",
     "mbar_arrive_expect_tx_cluster(w, 16);",
     {"mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64"}},
    {"mbar_test_wait",
     "keep(mbar_test_wait(w, 1));",
     {"mbarrier.test_wait.parity.acquire.cta.shared::cta.b64"}},
    {"mbar_test_wait_cluster",
     "keep(mbar_test_wait_cluster(w, 1));",
     {"mbarrier.test_wait.parity.acquire.cluster.shared::cta.b64"}},
    {"mbar_try_wait",
     "keep(mbar_try_wait(w, 1));",
     {"mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"}},
    {"mbar_try_wait_cluster",
     "keep(mbar_try_wait_cluster(w, 1));",
     {"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"}},
    {"mbar_wait", "mbar_wait(w, 1);", {"mbarrier.try_wait.parity.acquire.cta.shared::cta.b64"}},
    {"mbar_wait_cluster",
     "mbar_wait_cluster(w, 1);",
     {"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64"}},
    {"bar_sync", "bar_sync(3, 128);", {"barrier.sync.aligned %r"}},
    {"bar_arrive", "bar_arrive(3, 128);", {"barrier.arrive.aligned %r"}},
    {"cta_sync", "cta_sync();", {"barrier.sync.aligned 0;"}},
    {"warp_sync", "warp_sync();", {"bar.warp.sync"}},
    {"cluster_arrive", "cluster_arrive();", {"barrier.cluster.arrive.release.aligned;"}},
    {"cluster_arrive_relaxed",
     "cluster_arrive_relaxed();",
     {"barrier.cluster.arrive.relaxed.aligned;"}},
    {"cluster_wait", "cluster_wait();", {"barrier.cluster.wait.acquire.aligned;"}},
    {"cluster_sync",
     "cluster_sync();",
     {"barrier.cluster.arrive.release.aligned;", "barrier.cluster.wait.acquire.aligned;"}},
    {"pdl_wait", "pdl_wait();", {"griddepcontrol.wait;"}},
    {"pdl_launch", "pdl_launch();", {"griddepcontrol.launch_dependents;"}},
    {"nanosleep", "nanosleep(20);", {"nanosleep.u32"}},
    {"trap", "trap(\"probe\");", {"trap;"}},
    {"reg_increase", "reg_increase<240>();", {"setmaxnreg.inc.sync.aligned.u32 240;"}},
    {"reg_decrease", "reg_decrease<24>();", {"setmaxnreg.dec.sync.aligned.u32 24;"}},
    {"tma_prefetch_map", "tma_prefetch_map(args.map);", {"prefetch.tensormap"}},
    {"tma_load_2d",
     "tma_load_2d(w, args.map, 8, n, n);",
     {"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint"}},
    {"tma_load_multicast_2d",
     "tma_load_multicast_2d(w, args.map, 8, n, n, 3, L2Hint::kEvictLast);",
     {"cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster"}},
    {"tma_store_2d",
     "tma_store_2d(args.map, w, n, n);",
     {"cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"}},
    {"tma_reduce_add_2d",
     "tma_reduce_add_2d(args.map, w, n, n);",
     {"cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group"}},
    {"tma_prefetch_2d",
     "tma_prefetch_2d(args.map, n, n);",
     {"cp.async.bulk.prefetch.tensor.2d.L2.global.tile"}},
    {"tma_load_3d",
     "tma_load_3d(w, args.map, 8, n, n, n);",
     {"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint"}},
    {"tma_load_multicast_3d",
     "tma_load_multicast_3d(w, args.map, 8, n, n, n, 3, L2Hint::kEvictLast);",
     {"cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster"}},
    {"tma_store_3d",
     "tma_store_3d(args.map, w, n, n, n);",
     {"cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group"}},
    {"tma_reduce_add_3d",
     "tma_reduce_add_3d(args.map, w, n, n, n);",
     {"cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group"}},
    {"tma_prefetch_3d",
     "tma_prefetch_3d(args.map, n, n, n);",
     {"cp.async.bulk.prefetch.tensor.3d.L2.global.tile"}},
    {"tma_load_4d",
     "tma_load_4d(w, args.map, 8, n, n, n, n);",
     {"cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint"}},
    {"tma_load_multicast_4d",
     "tma_load_multicast_4d(w, args.map, 8, n, n, n, n, 3, L2Hint::kEvictLast);",
     {"cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster"}},
    {"tma_store_4d",
     "tma_store_4d(args.map, w, n, n, n, n);",
     {"cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"}},
    {"tma_reduce_add_4d",
     "tma_reduce_add_4d(args.map, w, n, n, n, n);",
     {"cp.reduce.async.bulk.tensor.4d.global.shared::cta.add.tile.bulk_group"}},
    {"tma_prefetch_4d",
     "tma_prefetch_4d(args.map, n, n, n, n);",
     {"cp.async.bulk.prefetch.tensor.4d.L2.global.tile"}},
    {"tma_load_5d",
     "tma_load_5d(w, args.map, 8, n, n, n, n, n);",
     {"cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_"
      "hint"}},
    {"tma_load_multicast_5d",
     "tma_load_multicast_5d(w, args.map, 8, n, n, n, n, n, 3, L2Hint::kEvictLast);",
     {"cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
      "cluster"}},
    {"tma_store_5d",
     "tma_store_5d(args.map, w, n, n, n, n, n);",
     {"cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group"}},
    {"tma_reduce_add_5d",
     "tma_reduce_add_5d(args.map, w, n, n, n, n, n);",
     {"cp.reduce.async.bulk.tensor.5d.global.shared::cta.add.tile.bulk_group"}},
    {"tma_prefetch_5d",
     "tma_prefetch_5d(args.map, n, n, n, n, n);",
     {"cp.async.bulk.prefetch.tensor.5d.L2.global.tile"}},
    {"bulk_load",
     "bulk_load(w, global_as<u8>(), 64, 8);",
     {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"}},
    {"bulk_load_multicast",
     "bulk_load_multicast(w, global_as<u8>(), 64, 8, 3);",
     {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"}},
    {"bulk_store",
     "bulk_store(global_as<u8>(), w, 64);",
     {"cp.async.bulk.global.shared::cta.bulk_group"}},
    {"bulk_copy_to_cluster",
     "bulk_copy_to_cluster(w, 16, 64, 8);",
     {"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"}},
    {"bulk_reduce_add_f32",
     "bulk_reduce_add_f32(global_as<float>(), w, 64);",
     {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32"}},
    {"bulk_reduce_add_f16",
     "bulk_reduce_add_f16(global_as<u16>(), w, 64);",
     {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16"}},
    {"bulk_reduce_add_bf16",
     "bulk_reduce_add_bf16(global_as<u16>(), w, 64);",
     {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16"}},
    {"bulk_reduce_add_s32",
     "bulk_reduce_add_s32(global_as<i32>(), w, 64);",
     {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.s32"}},
    {"bulk_reduce_add_u32",
     "bulk_reduce_add_u32(global_as<u32>(), w, 64);",
     {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"}},
    {"bulk_commit", "bulk_commit();", {"cp.async.bulk.commit_group;"}},
    {"bulk_wait", "bulk_wait<2>();", {"cp.async.bulk.wait_group 2;"}},
    {"bulk_wait_read", "bulk_wait_read<2>();", {"cp.async.bulk.wait_group.read 2;"}},
    {"cp_async_16", "cp_async_16(w, global_as<u8>(), 8);", {"cp.async.cg.shared.global"}},
    {"cp_async_commit", "cp_async_commit();", {"cp.async.commit_group;"}},
    {"cp_async_wait", "cp_async_wait<2>();", {"cp.async.wait_group 2;"}},
    {"cp_async_wait_all", "cp_async_wait_all();", {"cp.async.wait_all;"}},
    {"cp_async_mbar_arrive",
     "cp_async_mbar_arrive(w);",
     {"cp.async.mbarrier.arrive.shared::cta.b64"}},
    {"cp_async_mbar_arrive_noinc",
     "cp_async_mbar_arrive_noinc(w);",
     {"cp.async.mbarrier.arrive.noinc.shared::cta.b64"}},
    {"ldmatrix_x1",
     "keep(ldmatrix_x1(shared_as<u32>()));",
     {"ldmatrix.sync.aligned.m8n8.x1.shared.b16"}},
    {"stmatrix_x1",
     "stmatrix_x1(shared_as<u32>(), value_as<u32>());",
     {"stmatrix.sync.aligned.m8n8.x1.shared.b16"}},
    {"ldmatrix_x1_trans",
     "keep(ldmatrix_x1_trans(shared_as<u32>()));",
     {"ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16"}},
    {"stmatrix_x1_trans",
     "stmatrix_x1_trans(shared_as<u32>(), value_as<u32>());",
     {"stmatrix.sync.aligned.m8n8.x1.trans.shared.b16"}},
    {"ldmatrix_x2",
     "keep(ldmatrix_x2(shared_as<u32>()));",
     {"ldmatrix.sync.aligned.m8n8.x2.shared.b16"}},
    {"stmatrix_x2",
     "stmatrix_x2(shared_as<u32>(), value_as<Vec<u32, 2>>());",
     {"stmatrix.sync.aligned.m8n8.x2.shared.b16"}},
    {"ldmatrix_x2_trans",
     "keep(ldmatrix_x2_trans(shared_as<u32>()));",
     {"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16"}},
    {"stmatrix_x2_trans",
     "stmatrix_x2_trans(shared_as<u32>(), value_as<Vec<u32, 2>>());",
     {"stmatrix.sync.aligned.m8n8.x2.trans.shared.b16"}},
    {"ldmatrix_x4",
     "keep(ldmatrix_x4(shared_as<u32>()));",
     {"ldmatrix.sync.aligned.m8n8.x4.shared.b16"}},
    {"stmatrix_x4",
     "stmatrix_x4(shared_as<u32>(), value_as<Vec<u32, 4>>());",
     {"stmatrix.sync.aligned.m8n8.x4.shared.b16"}},
    {"ldmatrix_x4_trans",
     "keep(ldmatrix_x4_trans(shared_as<u32>()));",
     {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"}},
    {"stmatrix_x4_trans",
     "stmatrix_x4_trans(shared_as<u32>(), value_as<Vec<u32, 4>>());",
     {"stmatrix.sync.aligned.m8n8.x4.trans.shared.b16"}},
    {"movmatrix", "keep(movmatrix(w));", {"movmatrix.sync.aligned.m8n8.trans.b16"}},
    {"pack_f16", "keep(pack_f16(f, 2 * f));", {"cvt.rn.f16x2.f32"}},
    {"pack_bf16", "keep(pack_bf16(f, 2 * f));", {"cvt.rn.bf16x2.f32"}},
    {"pack_e4m3", "keep(pack_e4m3(f, f, f, 2 * f));", {"cvt.rn.satfinite.e4m3x2.f32"}},
    {"pack_e5m2", "keep(pack_e5m2(f, f, f, 2 * f));", {"cvt.rn.satfinite.e5m2x2.f32"}},
    {"f16_to_f32", "keep(f16_to_f32(u16(w)));", {"cvt.f32.f16"}},
    {"bf16_to_f32", "keep(bf16_to_f32(u16(w)));", {"cvt.f32.bf16"}},
    {"e4m3x2_to_f16x2", "keep(e4m3x2_to_f16x2(u16(w)));", {"cvt.rn.f16x2.e4m3x2"}},
    {"e5m2x2_to_f16x2", "keep(e5m2x2_to_f16x2(u16(w)));", {"cvt.rn.f16x2.e5m2x2"}},
    {"ex2", "keep(ex2(f));", {"ex2.approx.ftz.f32"}},
    {"lg2", "keep(lg2(f));", {"lg2.approx.ftz.f32"}},
    {"rcp", "keep(rcp(f));", {"rcp.approx.ftz.f32"}},
    {"tanh_approx", "keep(tanh_approx(f));", {"tanh.approx.f32"}},
    {"fma", "keep(fa3::ptx::fma(f, f, 1.f));", {"fma.rn.f32"}},
    {"max", "keep(fa3::ptx::max(f, 1.f));", {"max.f32"}},
    {"min", "keep(fa3::ptx::min(f, 1.f));", {"min.f32"}},
    {"max_nan", "keep(max_nan(f, 1.f));", {"max.NaN.f32"}},
    {"prmt", "keep(prmt(w, 7, 0x5410));", {"prmt.b32"}},
    {"wgmma_fence", "wgmma_fence();", {"wgmma.fence.sync.aligned;"}},
    {"wgmma_commit", "wgmma_commit();", {"wgmma.commit_group.sync.aligned;"}},
    {"wgmma_wait", "wgmma_wait<1>();", {"wgmma.wait_group.sync.aligned 1;"}},
    {"fence_regs",
     "Acc<8> acc;\nacc.zero();\nfence_regs(acc);\nkeep(acc[0]);",
     {"begin inline asm"}}};

const struct {
  MmaType type;
  const char *name, *text, *depth, *result;
} kTypes[] = {
    {MmaType::kF16, "kF16", "f16", "k16", "f32"},
    {MmaType::kBf16, "kBf16", "bf16", "k16", "f32"},
    {MmaType::kTf32, "kTf32", "tf32", "k8", "f32"},
    {MmaType::kE4m3, "kE4m3", "e4m3", "k32", "f32"},
    {MmaType::kE5m2, "kE5m2", "e5m2", "k32", "f32"},
    {MmaType::kS8, "kS8", "s8", "k32", "s32"},
    {MmaType::kU8, "kU8", "u8", "k32", "s32"},
};

// The statements of one wgmma; what stands behind "p" in PTX is `tail`.
void add_wgmma(std::vector<Probe>& probes, size_t a, size_t b, int n, bool registers, int trans_a,
               int trans_b) {
  const auto &ta = kTypes[a], &tb = kTypes[b];
  const std::string begin = fmt::format(
      "AccFor<MmaType::{0}, {1}> acc;\nacc.zero();\nAFrag a;\n"
      "for (int i = 0; i < 4; ++i) a[i] = w + i;\nwgmma_fence();\n",
      ta.name, n);
  const std::string end =
      "wgmma_commit();\nwgmma_wait<0>();\nfence_regs(acc);\n"
      "keep(acc[0]);";
  const bool is_16_bit = size_of(ta.type) == 2;
  const std::string call =
      registers ? fmt::format("wgmma_rs<MmaType::{}, {}, {}, MmaType::{}>(acc, a, d, w > 1);\n",
                              ta.name, n, trans_b != 0, tb.name)
                : fmt::format("wgmma_ss<MmaType::{}, {}, {}, {}, MmaType::{}>(acc, d, d, w > 1);\n",
                              ta.name, n, trans_a != 0, trans_b != 0, tb.name);
  std::string tail = is_int8(ta.type) ? "" : ", 1, 1";
  if (is_16_bit && !registers) tail += fmt::format(", {}", trans_a);
  if (is_16_bit) tail += fmt::format(", {}", trans_b);
  const std::string mnemonic = fmt::format("wgmma.mma_async.sync.aligned.m64n{}{}.{}.{}.{} ", n,
                                           ta.depth, ta.result, ta.text, tb.text);
  const char* function = registers ? "wgmma_rs" : "wgmma_ss";
  probes.push_back({function, begin + call + end, {mnemonic, ", p" + tail + ";}"}});
}

}  // namespace

std::vector<Probe> ptx_probes() {
  std::vector<Probe> probes(std::begin(kProbes), std::end(kProbes));
  for (int n = 8; n <= 256; n += 8) {  // every operand list
    for (const size_t type : {size_t{1}, size_t{5}}) {
      if (!wgmma_has_columns(kTypes[type].type, n)) continue;
      for (const bool registers : {false, true}) add_wgmma(probes, type, type, n, registers, 0, 0);
    }
  }
  for (size_t a = 0; a < std::size(kTypes); ++a) {  // every type
    for (size_t b = 0; b < std::size(kTypes); ++b) {
      if (!wgmma_has_types(kTypes[a].type, kTypes[b].type)) continue;
      for (const bool registers : {false, true}) {
        const int orders = size_of(kTypes[a].type) == 2 ? 2 : 1;
        for (int trans_a = 0; trans_a < (registers ? 1 : orders); ++trans_a) {
          for (int trans_b = 0; trans_b < orders; ++trans_b) {
            add_wgmma(probes, a, b, 16, registers, trans_a, trans_b);
          }
        }
      }
    }
  }
  return probes;
}

std::string probe_source(const std::vector<Probe>& probes) {
  std::string source;
  for (const cuda::DeviceHeader& header : cuda::device_headers()) {
    const std::string path = header.path;
    if (path.starts_with("device/ptx/")) source += "#include \"" + path + "\"\n";
  }
  // Inputs come from constant memory, so that a probe contains no load but its own.
  source += R"(
namespace fa3::ptx {
struct Args { TensorMap map; };
__constant__ u64 input;
__device__ u64 output[64];
template <class T> __device__ T* global_as() { return reinterpret_cast<T*>(output); }
template <class T> __device__ T* shared_as() { return &smem_as<T>(); }
template <class T> __device__ T value_as() {
  const Vec<u32, 4> words{u32(input), 1, 2, 3};
  return *reinterpret_cast<const T*>(&words);
}
template <class T> __device__ void keep(T value) { *reinterpret_cast<T*>(output + 8) = value; }
)";
  for (size_t i = 0; i < probes.size(); ++i) {
    source += fmt::format(
        "extern \"C\" __global__ __launch_bounds__(256) void probe_{}("
        "const __grid_constant__ Args args) {{\n"
        "const u64 d = input;\nconst u32 w = u32(d);\nconst i32 n = i32(w) - 7;\n"
        "const float f = 1.5f * w;\n{}\n}}\n",
        i, probes[i].call);
  }
  return source + "}  // namespace fa3::ptx\n";
}

}  // namespace fa3::kit
